# SPDX-License-Identifier: Apache-2.0
"""An attention worker's session in Python: its rows go to the FFN workers' windows and come back.

    run("/afd-demo-1", 1, 2, table, calls)      prefix, session, FFN workers, [L, E+S, R, 2], calls

The other sessions and the FFN workers may be in any language: they share the segments. A call is
(x, expert ids, weights, layer); the rows of each come back in order, with the bits of any other
session that sent the same. The agreement about flags is the simplest there is: 0 means free.
"""
import time

import numpy as np

import afd


def run(prefix, session, num_ranks, table, calls):
    context = afd.ScheduleContext(afd.segment(f"{prefix}-attn{session}-control"))
    window = afd.segment(f"{prefix}-attn{session}-window")
    ffn_windows = [afd.segment(f"{prefix}-ffn{rank}-window") for rank in range(num_ranks)]
    ffn_context = afd.ScheduleContext(afd.segment(f"{prefix}-ffn0-control"))
    descriptors = [ffn_context.ffn_descriptors(each)[session] for each in ffn_windows]
    flags = context.result_flags(window)
    for x, ids, weights, layer in calls:
        # The one after that combined last, free once every FFN worker has copied its rows.
        m = (context.attention.micro_batch_id + 1) % context.common.micro_batch_num
        while any(each[m, 0] for each in descriptors):
            time.sleep(0)
        afd.attention_to_ffn(ffn_context, ffn_windows, x, ids, table, session_id=session,
                             micro_batch_id=m, layer_id=layer)
        while context.attention.micro_batch_id != m:  # Combining takes it, once all rows are back.
            result = afd.attention_worker_combine(
                context, window, weights, ids, np.array([layer], np.int32),
                hidden_size=x.shape[1], token_dtype=1, need_schedule=1)
            time.sleep(0)
        flags[m] = 0
        yield result.y
