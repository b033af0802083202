/* SPDX-License-Identifier: Apache-2.0
 *
 * The control channel, and the memory of two-phase rounds that is asked for over it. One FFN rank
 * with one session; the rank's process dies at any step, CRASHES times in all; afdd leaves up to
 * SILENCES questions without an answer, or answers late.
 *
 *   data thread -- ring --> control thread -- up --> afdd -- down --> data thread
 *                                                       '-- handed --> session
 *
 * The main thread posts a Ready, and then the data thread runs; the control thread sends both. A
 * ring, and what afdd has sent, die with the process; what is in the socket afdd still takes, and
 * only then sees the end.
 *
 * Words in shared memory, which outlive everybody: offer, closed (session); granted, refused, ack
 * (rank). `held` is the round whose memory afdd holds, `handed` the last that the session was given.
 *
 * Safety: afdd takes no event of a worker that has not said Ready; a session that is granted a
 * round finds its memory, and keeps it until it closes; in the end afdd holds none. Progress: every
 * round ends (no invalid end state).
 *
 * A rule is left out with -D: NO_ORDER (the control thread looks for a Ready before it takes an
 * event, not after), NO_ANY_STATE (afdd takes requests and releases of ready workers only),
 * NO_DEADLINE (the rank asks TRIES times, and waits), NO_ROUND (an answer counts for whatever is
 * asked), NO_SESSION (afdd hands the memory to the rank alone), NO_LATER (a release frees its own
 * round only), NO_MADE_UP (a successor does not release again what its predecessor acknowledged).
 * Each gives a counterexample: model_check.py.
 */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef SILENCES
#define SILENCES 3
#endif
#define TRIES 2

mtype = { READY, EVENT, REQUEST, RELEASE, IDLE, REQUESTED, GRANTED, REFUSED, CLOSING, DOWN, STARTING };

chan ring = [4] of { mtype, byte };
chan up = [4] of { mtype, byte };
chan down = [4] of { byte };

byte offer, closed, granted, refused, ack;
byte held, handed;
mtype slot = STARTING;   /* the rank's place, as afdd sees it */
bool is_alive = true;    /* the process takes steps */
mtype lane = IDLE;       /* the data thread's */
bool is_posted, is_said; /* the Ready: posted; sent */
bool is_over;
byte crashes = CRASHES;
byte silences = SILENCES;

proctype Session() {
  byte n;
  do
  :: n == ROUNDS -> break
  :: else ->
     (ack == n); /* R4 */
     n++;
     offer = n;
     if
     :: skip -> /* Waits, however long it takes. */
        if
        :: granted == n && handed == n ->
           assert(held == n);
           /* Rows and results. */
           assert(held == n)
        :: refused == n -> skip
        fi
     :: skip /* Cancelled at any time. */
     fi;
     closed = n
  od;
  (ack == n);
  is_over = true
}

proctype Rank() {
  byte round, tries, n;
  mtype m;
  bool is_seen; /* NO_ORDER: what the control thread saw of the Ready */
  bool is_made_up, said_event;
end:
  do
  /* main thread: what a predecessor acknowledged and may not have released, then the Ready */
  :: atomic { is_alive && !is_made_up && nfull(ring) ->
#ifndef NO_MADE_UP
     if
     :: ack != 0 && offer == ack -> ring!RELEASE, ack
     :: else -> skip
     fi;
#endif
     is_made_up = true
     }
  :: atomic { is_alive && is_made_up && !is_posted -> is_posted = true }
  /* data thread */
  :: atomic { is_alive && is_posted && !said_event && nfull(ring) -> ring!EVENT, 0; said_event = true }
  :: atomic { is_alive && is_posted && lane == IDLE && offer != ack && nfull(ring) ->
     round = offer;
     if
     :: closed == round -> ring!RELEASE, round; lane = CLOSING
     :: closed != round && refused == round -> lane = REFUSED
     :: else -> ring!REQUEST, round; tries = 1; lane = REQUESTED
     fi
     }
  :: atomic { is_alive && lane != IDLE && lane != CLOSING && closed == round && nfull(ring) ->
     ring!RELEASE, round;
     lane = CLOSING
     }
  :: atomic { is_alive && lane == CLOSING -> ack = round; lane = IDLE }
  :: atomic { is_alive && lane == REQUESTED && tries < TRIES && nfull(ring) -> ring!REQUEST, round; tries++ }
#ifndef NO_DEADLINE
  :: atomic { is_alive && lane == REQUESTED && tries == TRIES -> refused = round; lane = REFUSED }
#endif
  :: atomic { is_alive && is_posted && nempty(down) ->
     down?n;
     if
#ifdef NO_ROUND
     :: lane == REQUESTED -> granted = round; lane = GRANTED
#else
     :: lane == REQUESTED && n == round -> granted = round; lane = GRANTED
#endif
     :: else -> skip
     fi;
     n = 0
     }
  /* control thread */
#ifdef NO_ORDER
  :: atomic { is_alive && is_posted && !is_seen -> is_seen = true }
#define SEES_READY is_seen
#else
#define SEES_READY is_posted
#endif
  :: atomic { is_alive && SEES_READY && !is_said && nfull(up) -> up!READY, 0; is_said = true }
  :: atomic { is_alive && nempty(ring) && (is_said || !SEES_READY) && nfull(up) ->
     ring?m, n; up!m, n; n = 0
     }
  /* the end, and a successor */
  :: atomic { is_alive && crashes > 0 && !is_over -> crashes--; is_alive = false }
  :: atomic { slot == DOWN ->
     do
     :: nempty(ring) -> ring?m, n
     :: nempty(down) -> down?n
     :: empty(ring) && empty(down) -> break
     od;
     lane = IDLE; round = 0; tries = 0; n = 0;
     is_posted = false; is_said = false; is_seen = false; is_made_up = false; said_event = false;
     slot = STARTING; is_alive = true
     }
  od
}

proctype Afdd() {
  byte n;
end:
  do
  :: atomic { up?READY, n -> slot = READY }
  :: atomic { up?EVENT, n -> assert(slot == READY) }
  :: atomic { up?REQUEST, n ->
     if
#ifdef NO_ANY_STATE
     :: slot != READY -> skip
     :: slot == READY && nfull(down) ->
#else
     :: silences > 0 -> silences--
     :: nfull(down) ->
#endif
        /* The same round again: the same memory. An older one, whose release was lost, goes. */
        held = n;
#ifndef NO_SESSION
        handed = n;
#endif
        down!n
     fi;
     n = 0
     }
  :: atomic { up?RELEASE, n ->
     if
#ifdef NO_ANY_STATE
     :: slot == READY && held != 0 && held <= n -> held = 0
#else
#ifdef NO_LATER
     :: held == n -> held = 0
#else
     :: held != 0 && held <= n -> held = 0
#endif
#endif
     :: else -> skip
     fi;
     n = 0
     }
  :: atomic { !is_alive && slot != DOWN && empty(up) -> slot = DOWN }
  od
}

proctype End() {
end:
  atomic {
    is_over && is_alive && is_said && lane == IDLE && empty(ring) && empty(up) && empty(down) ->
    assert(held == 0)
  }
}

init {
  atomic {
    run Session();
    run Rank();
    run Afdd();
    run End()
  }
}
