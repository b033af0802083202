# SPDX-License-Identifier: Apache-2.0
"""An FFN worker in Python: takes what the sessions sent, runs its experts, returns the rows.

    run("/afd-demo-1", 0, gate_up, down, num_layers)

gate_up is bf16 [keys, H, 2*I] and down fp32 [keys, I, H]; key = layer * experts a layer + local id.
The sessions and the other FFN workers may be in any language. It ends when run_flag is 0.
"""
import time

import numpy as np

import afd


def run(prefix, rank, gate_up, down, num_layers):
    control = afd.segment(f"{prefix}-ffn{rank}-control")
    context = afd.ScheduleContext(control)
    window = afd.segment(f"{prefix}-ffn{rank}-window")
    descriptors = context.ffn_descriptors(window)
    sizes = context.common
    attention_windows = [afd.segment(f"{prefix}-attn{session}-window")
                         for session in range(sizes.session_num)]
    attention_context = afd.ScheduleContext(afd.segment(f"{prefix}-attn0-control"))
    while context.control.run_flag:
        batch = afd.ffn_worker_batching(
            context, window, control, expert_num=len(down), layer_num=num_layers, token_dtype=1,
            need_schedule=1, max_out_shape=[sizes.session_num, sizes.micro_batch_size,
                                            sizes.selected_expert_num, gate_up.shape[1]])
        for session, micro_batch in zip(*context.taken(control)):
            descriptors[session, micro_batch, 0] = 0  # Copied: the session may write the next.
        hidden = afd.grouped_matmul_swiglu(batch.y, gate_up, batch.group_list,
                                           group_list_type=2).output.float32()
        rows, first = np.zeros(batch.y.shape, np.float32), 0
        for key, count in batch.group_list:
            rows[first:first + count] = hidden[first:first + count] @ down[key]
            first += count
        if first == 0:
            time.sleep(0)
            continue
        afd.ffn_to_attention(attention_context, attention_windows, afd.bf16(rows),
                             batch.session_ids, batch.micro_batch_ids, batch.token_ids,
                             batch.expert_offsets, batch.actual_token_num, token_dtype=1)
