// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/private_expert.h"

#include "model/checkpoint/expert_tensors.h"

namespace afd::model {

Result<ops::PackedExpert> load_expert(const ModelFiles& files,
                                      uint32_t layer,
                                      uint32_t expert,
                                      ops::NumericClass numeric_class) {
    // One part after the other: of a wide dense layer both would take a GiB more.
    const auto read = [&](ExpertPart part) {
        return read_expert_tensors(files.tensors(), files.config(), layer, expert, part);
    };
    ops::PackedExpert packed;
    {
        AFD_ASSIGN(const ExpertTensors inward, read(ExpertPart::kGateUp));
        packed.gate_up = packed_gate_up(inward.gate, inward.up, numeric_class);
    }
    AFD_ASSIGN(const ExpertTensors outward, read(ExpertPart::kDown));
    packed.down = outward.down.packed(numeric_class);
    return packed;
}

}  // namespace afd::model
