/* SPDX-License-Identifier: Apache-2.0
 *
 * Other numbers of workers while requests run (daemon/afdd/resizer.h): a crew of workers in the
 * place of another. A crew is an attention worker and an FFN worker here, that answers for each
 * token; each process dies at any step, CRASHES times in all, and is started again. The new crew
 * may be one that cannot start. With STOP_FIRST the old one ends before.
 *
 *   attention worker -- up --> afdd -- down --> attention worker
 *
 * A request has TOKENS tokens; afdd knows how many its client has, and where it runs. The client
 * may cancel it at any time. What is in `down` dies with the process; what is in `up` afdd still
 * takes.
 *
 * Safety: a client gets each token once and in order. Progress: each request ends, and so does the
 * resize, one way or the other (no invalid end state; every run ends).
 *
 * A rule is left out with -D: NO_GONE (R8: requests move before the last old process is gone),
 * NO_TAKEN (afdd sees the end of a process before what it has said), NO_KILL (a worker that waits
 * for its peer is not ended), NO_HAND_OVER (nobody tells the gateway who of the new crew is ready
 * already), NO_UNDO (a crew that cannot start is waited for), NO_BACK (the same, with STOP_FIRST),
 * NO_REPLAY (what ran in a worker that ended does not run again). Each gives a counterexample:
 * model_check.py.
 */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef TOKENS
#define TOKENS 2
#endif
#define ATTEMPTS 2 /* Deaths before the first Ready that give a crew up. */
#define OLD 0
#define NEW 1
#define NOWHERE 2

mtype = { READY, TOKEN, DOWN, STARTING };
mtype = { NONE, BESIDE, ENDING, UNDOING, ALONE, BACK }; /* the steps of a resize */

chan up[2] = [REQUESTS * TOKENS + 1] of { mtype, byte, byte };
chan down[2] = [REQUESTS] of { byte, byte };

/* The processes, by crew. */
bool is_alive[2], has_ffn[2];
bool is_hired[2], is_told[2]; /* afdd starts them; they are to end */
bool can_start[2] = true;
byte crashes = CRASHES;

/* afdd */
mtype slot[2] = DOWN; /* the attention worker's place */
mtype step = NONE;
byte num_failed[2];
bool was_ready[2];
byte serving = OLD;
bool knows_ready, is_still; /* the gateway: its worker is ready; it begins nothing */
byte at[REQUESTS] = NOWHERE, sent[REQUESTS];
bool has_ended[REQUESTS];
bool is_asked, is_answered;
bool is_over;

#define IS_GIVEN_UP(c) (num_failed[c] == ATTEMPTS)
#define IS_GONE(c) (!is_alive[c] && !has_ffn[c] && slot[c] == DOWN)
#define EACH(q) for (q : 0 .. REQUESTS - 1)

proctype Attention(byte c) {
  byte q, i;
  bool is_said, is_busy;
end:
  do
  :: atomic { is_alive[c] && !is_said && can_start[c] -> up[c]!READY, 0, 0; is_said = true }
  :: atomic { is_alive[c] && !is_said && !can_start[c] -> goto dead }
  :: atomic { is_alive[c] && is_said && !is_busy && nempty(down[c]) -> down[c]?q, i; is_busy = true }
  :: atomic { is_alive[c] && is_busy && has_ffn[c] && nfull(up[c]) ->
     up[c]!TOKEN, q, i;
     i++;
     if
     :: i == TOKENS -> is_busy = false; q = 0; i = 0
     :: else
     fi
     }
#ifdef NO_KILL
  :: atomic { is_alive[c] && is_told[c] && !is_busy -> goto dead }
#else
  :: atomic { is_alive[c] && is_told[c] -> goto dead }
#endif
  :: atomic { is_alive[c] && was_ready[OLD] && crashes > 0 && !is_over -> crashes--; goto dead }
  od;
dead:
  atomic { is_alive[c] = false; is_said = false; is_busy = false; q = 0; i = 0; goto end }
}

proctype Ffn(byte c) {
end:
  do
  :: atomic { has_ffn[c] && is_told[c] -> has_ffn[c] = false }
  :: atomic { has_ffn[c] && was_ready[OLD] && crashes > 0 && !is_over -> crashes--; has_ffn[c] = false }
  od
}

/* afdd, of one crew: what it hears and sees of it. */
proctype Supervisor(byte c) {
  byte q, i;
end:
  do
  :: atomic { up[c]?READY, _, _ ->
     slot[c] = READY;
     was_ready[c] = true;
     if
     :: c == serving -> knows_ready = true
     :: else
     fi
     }
  :: atomic { up[c]?TOKEN, q, i ->
     if
     :: has_ended[q] /* Cancelled. */
     :: else ->
        assert(at[q] == c && i == sent[q]);
        sent[q]++;
        has_ended[q] = (sent[q] == TOKENS)
     fi;
     q = 0; i = 0
     }
#ifdef NO_TAKEN
  :: atomic { slot[c] != DOWN && !is_alive[c] ->
#else
  :: atomic { slot[c] != DOWN && !is_alive[c] && empty(up[c]) ->
#endif
     slot[c] = DOWN;
     num_failed[c] = (was_ready[c] -> num_failed[c] : num_failed[c] + 1);
     if
     :: c == serving -> knows_ready = false
     :: else
     fi;
#ifndef NO_REPLAY
     EACH(q) {
       if
       :: at[q] == c -> at[q] = NOWHERE
       :: else
       fi
     }
#endif
     q = 0;
     do
     :: nempty(down[c]) -> down[c]?_, _
     :: empty(down[c]) -> break
     od
     }
  :: atomic { slot[c] == DOWN && is_hired[c] && !is_told[c] && !IS_GIVEN_UP(c) && !is_over ->
     slot[c] = STARTING;
     is_alive[c] = true
     }
  :: atomic { !has_ffn[c] && is_hired[c] && !is_told[c] && !IS_GIVEN_UP(c) && !is_over ->
     has_ffn[c] = true
     }
  od
}

proctype Gateway() {
  byte q;
  do
  :: atomic { at[0] == NOWHERE && !has_ended[0] && !is_still && knows_ready ->
     at[0] = serving; down[serving]!0, sent[0]
     }
#if REQUESTS > 1
  :: atomic { at[1] == NOWHERE && !has_ended[1] && !is_still && knows_ready ->
     at[1] = serving; down[serving]!1, sent[1]
     }
  :: atomic { !has_ended[1] -> has_ended[1] = true }
  :: has_ended[0] && has_ended[1] && is_answered -> break
#else
  :: has_ended[0] && is_answered -> break
#endif
  od;
  is_over = true
}

inline answer() {
  is_answered = true;
  step = NONE
}

proctype Resizer() {
  /* At any time, the first start of the old crew excepted. */
  atomic { was_ready[OLD] ->
    is_asked = true;
    if
    :: can_start[NEW] = false
    :: skip
    fi;
#ifdef STOP_FIRST
    step = ENDING; is_still = true; is_told[OLD] = true
#else
    step = BESIDE; is_hired[NEW] = true
#endif
  }
  do
  :: atomic { step == BESIDE && slot[NEW] == READY && has_ffn[NEW] ->
     step = ENDING; is_still = true; is_told[OLD] = true
     }
#ifndef NO_UNDO
  :: atomic { step == BESIDE && IS_GIVEN_UP(NEW) -> step = UNDOING; is_told[NEW] = true }
#endif
  :: atomic { step == UNDOING && IS_GONE(NEW) -> is_hired[NEW] = false; answer(); break }
#ifdef NO_GONE
  :: atomic { step == ENDING ->
     d_step {
       at[0] = (at[0] == OLD -> NOWHERE : at[0]);
       at[REQUESTS - 1] = (at[REQUESTS - 1] == OLD -> NOWHERE : at[REQUESTS - 1])
     }
#else
  :: atomic { step == ENDING && IS_GONE(OLD) ->
#endif
     serving = NEW;
     is_still = false;
     knows_ready = false;
#ifdef STOP_FIRST
     is_hired[NEW] = true;
     step = ALONE
#else
#ifndef NO_HAND_OVER
     knows_ready = (slot[NEW] == READY);
#endif
     answer();
     break
#endif
     }
  :: atomic { step == ALONE && slot[NEW] == READY -> answer(); break }
#ifndef NO_BACK
  :: atomic { step == ALONE && IS_GIVEN_UP(NEW) -> step = BACK; is_still = true; is_told[NEW] = true }
#endif
  :: atomic { step == BACK && IS_GONE(NEW) ->
     serving = OLD;
     knows_ready = false;
     is_told[OLD] = false;
     is_still = false;
     answer();
     break
     }
  od
}

init {
  atomic {
    is_hired[OLD] = true;
    run Attention(OLD); run Ffn(OLD); run Supervisor(OLD);
    run Attention(NEW); run Ffn(NEW); run Supervisor(NEW);
    run Gateway();
    run Resizer()
  }
}
