// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/private_expert.h"

#include "model/checkpoint/expert_tensors.h"

namespace afd::model {

Result<ops::PackedExpert> load_expert(const ModelFiles& files,
                                      uint32_t layer,
                                      uint32_t expert,
                                      ops::NumericClass numeric_class) {
    AFD_ASSIGN(const ExpertTensors mlp,
               read_expert_tensors(files.tensors(), files.config(), layer, expert));
    return ops::PackedExpert{packed_gate_up(mlp.gate, mlp.up, numeric_class),
                             mlp.down.packed(numeric_class)};
}

}  // namespace afd::model
