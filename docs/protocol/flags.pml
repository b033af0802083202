/* SPDX-License-Identifier: Apache-2.0
 *
 * R1 to R6, R8 and R10: SESSIONS sessions and two ranks in shared memory. A session has one lane
 * and one result slot; each round gives the slot to either rank, and is published to that rank or
 * to both. A rank takes a batch of what is ready, of one session or of several, executes it, and
 * acknowledges. Every process dies at any step, CRASHES times in all, and has a successor.
 *
 * Words, each with one writer: flag, row, owns (session); ack, result (rank that owns the slot). A
 * row has two halves, stored and read one after the other. `seq` is a ghost: rounds begun; a row
 * holds whose it is, and of which round.
 *
 * Safety: what a session accepts is whole, and of the round that it waits for. Progress: all come
 * to their last round. A rank without work blocks and every step of the others uses something up,
 * so every run ends, and no invalid end state is all there is to show.
 *
 * A rule is left out with -D: NO_R1 (a round's number is the next, wherever it stands), NO_R2 (the
 * flag before the row), NO_ORDER (R3: acknowledged before the results are there), NO_KEEP (R3: a
 * successor knows no acknowledgements), NO_LOG (R3: what a dead rank had taken is lost), NO_R4 (all
 * results are enough), NO_ALL (R4: only the ranks of the new round are looked at), NO_R5 (any flag
 * is a result), NO_R6 (a slot that is not the rank's is not masked), NO_R8 (the old process may
 * live on), NO_R10 (a new session does not wait for old rounds). Each gives a counterexample:
 * model_check.py.
 */
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define NUMBERS 4 /* round numbers 1 ... NUMBERS, then 1 again */
#define LANES (2 * SESSIONS)
#define AT(s, r) (2 * (s) + (r))

byte flag[LANES], row_a[LANES], row_b[LANES]; /* a session's descriptor at a rank, its row */
bool owns[LANES];                             /* the slot is the rank's; else its id is masked */
byte ack[LANES];
byte result[SESSIONS], result_a[SESSIONS], result_b[SESSIONS]; /* the slot: its flag, its row */
byte seq[SESSIONS];                                            /* ghost */
byte crashes = CRASHES;
byte num_over;

#define IS_OVER (num_over == SESSIONS)
#define IS_READY(s, r) (flag[AT(s, r)] != ack[AT(s, r)])
#define DIE(then) \
  if \
  :: atomic { crashes > 0 && !IS_OVER -> crashes--; goto then } \
  :: skip \
  fi

/* What a process that was thought dead still does. */
proctype Ghost(byte s, n, a, b) {
  result_a[s] = a;
  result_b[s] = b;
  result[s] = n
}

/* The private copy of flag and ids (R2). */
inline take(s) {
  n[s] = flag[AT(s, me)];
  mine[s] = owns[AT(s, me)]
}

/* One after the other, where another process may come between. */
#define EACH(s) for (s : 0 .. SESSIONS - 1)

proctype Rank(byte me) {
  byte n[SESSIONS], a[SESSIONS], b[SESSIONS]; /* the batch: rounds (0: none), rows */
  bool mine[SESSIONS];
  byte s;
scan:
  do
  :: atomic { n[0] == 0 && IS_READY(0, me) -> take(0) }
#if SESSIONS > 1
  :: atomic { n[1] == 0 && IS_READY(1, me) -> take(1) }
  :: n[0] != 0 || n[1] != 0 -> break
#else
  :: n[0] != 0 -> break
#endif
  :: atomic { IS_OVER && n[0] == 0 && n[SESSIONS - 1] == 0 -> goto gone }
  :: atomic { crashes > 0 && !IS_OVER -> crashes--; goto dead }
  od;
#ifdef NO_ORDER
  EACH(s) {
    if
    :: n[s] != 0 -> ack[AT(s, me)] = n[s]
    :: else
    fi
  }
  DIE(dead);
#endif
  EACH(s) {
    if
    :: n[s] != 0 && mine[s] ->
       a[s] = row_a[AT(s, me)];
       b[s] = row_b[AT(s, me)]
    :: else
    fi
  }
  EACH(s) {
    if
    :: n[s] != 0 && mine[s] && result[s] != n[s] ->
       DIE(dead);
       result_a[s] = a[s];
       DIE(dead);
       result_b[s] = b[s];
       DIE(dead);
       result[s] = n[s]
    :: else /* not its own, or put already (R3) */
    fi
  }
  EACH(s) {
    if
    :: n[s] != 0 ->
       DIE(dead);
       ack[AT(s, me)] = n[s];
       d_step { n[s] = 0; a[s] = 0; b[s] = 0; mine[s] = false }
    :: else
    fi
  }
  s = 0;
  goto scan;
dead:
  /* R8: its successor comes when it is gone. */
  atomic {
    EACH(s) {
#ifdef NO_R8
      if
      :: n[s] != 0 && mine[s] -> run Ghost(s, n[s], a[s], b[s])
      :: else
      fi;
#endif
#ifdef NO_LOG
      if
      :: n[s] != 0 -> ack[AT(s, me)] = n[s]
      :: else
      fi;
#endif
#ifdef NO_KEEP
      ack[AT(s, me)] = 0;
#endif
      n[s] = 0; a[s] = 0; b[s] = 0; mine[s] = false
    }
    s = 0
  }
  goto scan;
gone:
  skip
}

#define HAS_LET_GO(r) (!IS_READY(me, r))
#define ROW (me * 16 + seq[me])
#ifdef NO_R6
#define MASK(r) skip
#else
#define MASK(r) owns[AT(me, r)] = false
#endif

proctype Session(byte me) {
  byte t, n;
  bool is_both, is_new;
begin:
  do
#ifdef NO_R10
  :: is_new -> break
#endif
#if defined(NO_R4) || defined(NO_ALL)
  :: !is_new -> break
#endif
  :: HAS_LET_GO(0) && HAS_LET_GO(1) -> break /* R4 and R10 */
  :: atomic { crashes > 0 -> crashes--; goto dead }
  od;
  is_new = false;
  if
  :: atomic { seq[me] == ROUNDS -> num_over++; goto gone }
  :: else
  fi;
  do
#ifdef NO_ALL
  :: HAS_LET_GO(0) -> t = 0; is_both = false; break
  :: HAS_LET_GO(1) -> t = 1; is_both = false; break
  :: atomic { crashes > 0 -> crashes--; goto dead }
#else
  :: t = 0; is_both = false; break
  :: t = 1; is_both = false; break
  :: t = 0; is_both = true; break
  :: t = 1; is_both = true; break
#endif
  od;
  /* R1: the next number that stands nowhere in the round. */
  atomic {
    seq[me]++;
    n = (n % NUMBERS) + 1;
#ifndef NO_R1
    do
    :: flag[AT(me, t)] == n || result[me] == n || (is_both && flag[AT(me, 1 - t)] == n) ->
       n = (n % NUMBERS) + 1
    :: else -> break
    od
#endif
  }
#ifdef NO_R2
  owns[AT(me, t)] = true;
  flag[AT(me, t)] = n;
  DIE(dead);
#endif
  row_a[AT(me, t)] = ROW;
  DIE(dead);
  row_b[AT(me, t)] = ROW;
  DIE(dead);
  owns[AT(me, t)] = true;
  flag[AT(me, t)] = n;
  if
  :: is_both -> DIE(dead); MASK(1 - t); flag[AT(me, 1 - t)] = n
  :: else
  fi;
  do
#ifdef NO_R5
  :: result[me] != 0 ->
#else
  :: result[me] == n ->
#endif
     atomic {
       assert(result_a[me] == ROW);
       assert(result_b[me] == ROW);
       goto begin
     }
  :: atomic { crashes > 0 -> crashes--; goto dead }
  od;
dead:
  /* A successor: it knows the words, and not the number that came last. */
  atomic { n = 0; t = 0; is_both = false; is_new = true; goto begin };
gone:
  skip
}

init {
  atomic {
    run Rank(0);
    run Rank(1);
    run Session(0)
#if SESSIONS > 1
    ; run Session(1)
#endif
  }
}
