/* SPDX-License-Identifier: Apache-2.0
 *
 * R12: the rounds of a lost rank go to a replica. One lane, two ranks that both hold the expert,
 * one result slot whose owner changes; a round is published to its owner, or to both; every
 * process dies at any step, CRASHES times in all.
 *
 *   the session asks the supervisor to void its open round at rank r: granted if r has no process,
 *   or one that still loads, else refused -> granted, the round counts as let go, and goes to the
 *   other rank under another number -> a successor of r has loaded, asks and is told what is void,
 *   and acknowledges what stands there unexecuted -> Ready -> the supervisor forgets them
 *
 * The session asks when it has heard of an end of r; the answer may come when r has a successor
 * that was told.
 *
 * Words, each with one writer: flag, row, owns (session); ack, result (rank that owns the slot).
 * Messages: ask, answer; loaded, told; ready. `voids` is what the supervisor remembers, `seq` a
 * ghost: which round a row is of.
 *
 * Safety: what the session accepts is whole, and of the round that it waits for. Progress: it comes
 * to its last round (no invalid end state).
 *
 * A rule is left out with -D: NO_R8 (the old process may live on), NO_GRANT (the session does not
 * wait for the answer), NO_VOID (the successor executes what is voided), NO_KEEP (the supervisor
 * forgets what it has told), NO_CLOSE (it grants until the Ready, and not until it tells), NO_R10
 * (a new session does not wait for old rounds). Each gives a counterexample: model_check.py.
 */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define NUMBERS 4 /* round numbers 1 ... NUMBERS, then 1 again */

byte flag[2], row_a[2], row_b[2]; /* the descriptor at each rank, its row in two halves */
bool owns[2];                     /* the slot is the rank's; else its id is masked */
byte ack[2];
byte result, result_a, result_b; /* the slot: its flag, its row */
byte up[2] = 1;                  /* processes of a rank that take steps */
bool is_gone[2];                 /* the supervisor has seen its end */
bool loaded[2], ready[2];        /* sent and not taken */
bool is_open[2];                 /* the supervisor grants */
bool is_told[2];                 /* the process has its answer */
byte voids[2], told[2];          /* what the supervisor remembers; what it has told */
byte ask[2];
byte answer[2]; /* 0: none, 1: granted, 2: refused */
byte seq;       /* ghost: rounds begun */
byte crashes = CRASHES;
bool is_over;

#define DIE(then) \
  if \
  :: atomic { crashes > 0 && !is_over -> crashes--; goto then } \
  :: skip \
  fi

proctype Rank(byte r) {
  byte n, a, b;
  goto scan;
start:
  DIE(dead);
  loaded[r] = true;
  do
  :: is_told[r] -> break
  :: is_over -> goto gone
  :: atomic { crashes > 0 && !is_over -> crashes--; goto dead }
  od;
#ifndef NO_VOID
  if
  :: told[r] != 0 && flag[r] == told[r] -> ack[r] = told[r]
  :: else -> skip
  fi;
#endif
  DIE(dead);
  ready[r] = true;
scan:
  do
  :: flag[r] != ack[r] ->
     n = flag[r];
     DIE(dead);
     if
     :: !owns[r] -> skip
     :: else ->
        a = row_a[r];
        b = row_b[r];
        DIE(dead);
        if
        :: result == n -> skip /* put already (R3) */
        :: else ->
           result_a = a;
           DIE(dead);
           result_b = b;
           DIE(dead);
           result = n
        fi
     fi;
     DIE(dead);
     ack[r] = n;
     n = 0; a = 0; b = 0
  :: is_over -> goto gone
  :: atomic { crashes > 0 && !is_over -> crashes--; goto dead }
  od;
dead:
#ifdef NO_R8
  /* Only stopped: its place is given away, and it goes on. */
  up[r] = 0;
  if
  :: n != 0 && owns[r] -> result_a = a; result_b = b; result = n
  :: else -> skip
  fi;
#else
  up[r] = 0;
#endif
  n = 0; a = 0; b = 0;
  (up[r] == 1 || is_over);
  if :: is_over -> skip :: else -> goto start fi;
gone:
  skip
}

/* Messages of a process are taken before its end is. */
proctype Supervisor(byte r) {
  do
  :: atomic { ready[r] -> ready[r] = false;
     /* For the time when the number comes again; too long a run to be searched. */
     voids[r] = 0;
     is_open[r] = false
     }
  :: atomic { loaded[r] -> loaded[r] = false;
     told[r] = voids[r];
     is_told[r] = true;
#ifdef NO_KEEP
     voids[r] = 0;
#endif
#ifndef NO_CLOSE
     is_open[r] = false
#endif
     }
  :: atomic { up[r] == 0 && !loaded[r] && !ready[r] && !is_gone[r] ->
     is_gone[r] = true;
     is_open[r] = true;
     is_told[r] = false;
     told[r] = 0
     }
  :: atomic { is_gone[r] -> is_gone[r] = false; up[r] = 1 }
  :: atomic { ask[r] != 0 ->
     if
     :: is_open[r] -> voids[r] = ask[r]; answer[r] = 1
     :: else -> answer[r] = 2
     fi;
     ask[r] = 0
     }
  :: is_over -> break
  od
}

/* Whether nothing of the round that the flag names can be executed any more: what it knows. */
#define LET_GO(r) (flag[r] == ack[r] || (granted[r] == flag[r] && flag[r] != 0))
#define MAY_ASK(r) \
  ((up[r] == 0 || is_open[r]) && flag[r] != ack[r] && granted[r] != flag[r] && ask[r] == 0 && \
   answer[r] == 0)
/* Where the session may store: r reads its stripe no more, and no answer about it is on its way. */
#define MAY_STORE(r) (flag[r] == ack[r] && ask[r] == 0 && answer[r] == 0)
#define STANDS(n, t) (flag[t] == n || result == n)

/* The answer is about the round that stands there: MAY_STORE. */
inline hear(r) {
  atomic {
    if
    :: answer[r] == 1 -> granted[r] = flag[r]
    :: else -> skip
    fi;
    answer[r] = 0
  }
}
#ifdef NO_GRANT
#define ASK(r) atomic { ask[r] = flag[r]; granted[r] = flag[r] }
#else
#define ASK(r) ask[r] = flag[r]
#endif

proctype Session() {
  byte t, n, mine;
  bool is_both;
  byte granted[2];
begin:
  /* R4 and R10 */
  do
#ifdef NO_R10
  :: mine == 0 -> break
#endif
  :: LET_GO(0) && LET_GO(1) -> break
  :: MAY_ASK(0) -> ASK(0)
  :: MAY_ASK(1) -> ASK(1)
  :: answer[0] != 0 -> hear(0)
  :: answer[1] != 0 -> hear(1)
  :: atomic { crashes > 0 -> crashes--; goto dead }
  od;
  if
  :: seq == ROUNDS -> is_over = true; goto gone
  :: else -> skip
  fi;
  /* The target must have acknowledged: its stripe is stored to. */
  do
  :: MAY_STORE(0) -> t = 0; break
  :: MAY_STORE(1) -> t = 1; break
  :: MAY_ASK(0) -> ASK(0)
  :: MAY_ASK(1) -> ASK(1)
  :: answer[0] != 0 -> hear(0)
  :: answer[1] != 0 -> hear(1)
  :: atomic { crashes > 0 -> crashes--; goto dead }
  od;
  is_both = false;
  if
  :: MAY_STORE(1 - t) -> is_both = true
  :: skip
  fi;
  /* R1: the next number that stands nowhere in the round. */
  atomic {
    seq++;
    mine = seq;
    n = (n % NUMBERS) + 1;
    do
    :: STANDS(n, t) || (is_both && flag[1 - t] == n) -> n = (n % NUMBERS) + 1
    :: else -> break
    od
  }
  granted[t] = 0;
  row_a[t] = mine;
  DIE(dead);
  row_b[t] = mine;
  DIE(dead);
  owns[t] = true;
  flag[t] = n;
  DIE(dead);
  if
  :: is_both -> granted[1 - t] = 0; owns[1 - t] = false; flag[1 - t] = n
  :: else -> skip
  fi;
  /* R5 */
  do
  :: result == n ->
     atomic {
       assert(result_a == mine);
       assert(result_b == mine);
       goto begin
     }
  :: MAY_ASK(0) -> ASK(0)
  :: MAY_ASK(1) -> ASK(1)
  :: answer[1 - t] != 0 -> hear(1 - t)
  :: answer[t] != 0 ->
     hear(t);
     if
     /* Once more: a round like any other. */
     :: granted[t] == n && result != n -> goto begin
     :: else -> skip
     fi
#ifdef NO_GRANT
  :: granted[t] == n && result != n -> goto begin
#endif
  :: atomic { crashes > 0 -> crashes--; goto dead }
  od;
dead:
  /* A successor: it knows the words, and not the number that came last. */
  (ask[0] == 0 && ask[1] == 0);
  atomic {
    answer[0] = 0; answer[1] = 0; granted[0] = 0; granted[1] = 0;
    n = 0; t = 0; mine = 0; is_both = false;
    goto begin
  };
gone:
  skip
}

init {
  atomic {
    run Rank(0);
    run Rank(1);
    run Supervisor(0);
    run Supervisor(1);
    run Session()
  }
}
