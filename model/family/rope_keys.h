// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys of a config.json that say how positions are rotated. Problems stay in `keys`.
//
// Older files have rope_theta and, if it is scaled, the object rope_scaling; newer ones
// (transformers 5) both in the object rope_parameters. Where a file has both objects rope_scaling
// counts, unless it is empty. rope_theta and partial_rotary_factor may stand in either or beside
// them, but are one number each. An object with more than these has a type (rope_type, or type as
// older files call it), and with a scaling no key that nobody here reads.

#include <cstddef>

#include "model/checkpoint/config.h"
#include "model/json/key_reader.h"

namespace afd::model {

// rope_theta, and the scaling: none, or yarn, which makes the context as long as factor times
// original_max_position_embeddings, where both are given, if it is not longer. Where neither object
// says anything config.yarn stays: there the family has put what that means.
// REQUIRES: read_dimensions() before it.
void read_rope(KeyReader& keys, ModelConfig& config);

// The same with longrope instead of yarn, of a rotation of `dim` elements: short_factor and
// short_mscale where max_position_embeddings is at most original_max_position_embeddings, else
// long_factor and long_mscale. So what a token's rotation is does not depend on what follows it.
// REQUIRES: as read_rope().
void read_long_rope(KeyReader& keys, size_t dim, ModelConfig& config);

// How many elements of a head are rotated: partial_rotary_factor of them, or without it `fallback`.
// REQUIRES: head_dim is even.
size_t read_rotary_dim(KeyReader& keys, size_t head_dim, size_t fallback);

// Refuses a partial_rotary_factor other than 1, for families of which all of a head is rotated.
void refuse_partial_rotation(KeyReader& keys);

}  // namespace afd::model
