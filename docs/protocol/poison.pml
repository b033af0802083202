/* SPDX-License-Identifier: Apache-2.0
 *
 * R11: three kills are enough. One rank, two lanes: the rounds of lane 1 kill whoever executes them,
 * those of lane 0 do not. From outside the rank is killed at any step, CRASHES times in all: once does
 * not make an innocent round look deadly, even if it shared a pass with one that is. Twice does: of
 * three starts without an end only one was the deadly neighbour's doing, and nobody can tell.
 *
 * The rank notes in its segment, which outlives it, that an execution starts and that it has ended.
 * What was started and not ended is a suspect: its successor executes it alone, and refuses it when
 * it has been started DEADLY times; behind the acknowledgement its starts are forgotten.
 *
 * Safety: no round of lane 0 is refused; no round of lane 1 kills more than DEADLY times. Progress:
 * both lanes come to the end of their rounds.
 *
 * A rule is left out with -D: NO_LOG (the notes die with the process), NO_ALONE (suspects are
 * executed with others), NO_FIRST (a start is noted when the execution is over). Each gives a
 * counterexample: model_check.py.
 */
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define DEADLY 3

byte flag[2], ack[2];
bool refused[2];
byte noted[2], starts[2]; /* the execution log: round and number of starts */
byte kills;               /* ghost: of the open round of lane 1 */
byte crashes = CRASHES;
byte num_over;

#define IS_OVER (num_over == 2)
#define IS_READY(i) (flag[i] != ack[i])
#define IS_SUSPECT(i) (IS_READY(i) && noted[i] == flag[i] && starts[i] > 0)

#define DIE \
  if \
  :: atomic { crashes > 0 && !IS_OVER -> crashes--; goto dead } \
  :: skip \
  fi

inline start(i) {
  d_step {
    if
    :: noted[i] == flag[i] -> starts[i]++
    :: else -> noted[i] = flag[i]; starts[i] = 1
    fi
  }
}

inline finish(i) {
  starts[i] = 0;
  DIE;
  refused[i] = false;
  ack[i] = flag[i]
}

inline refuse(i) {
  refused[i] = true;
  ack[i] = flag[i];
  DIE;
  starts[i] = 0
}

/* What lane 1 does to who executes it. */
#define KILLED atomic { kills++; assert(kills <= DEADLY); goto dead }

proctype Rank() {
  byte i;
next:
  DIE;
  if
#ifndef NO_ALONE
  :: IS_SUSPECT(0) -> i = 0; goto alone
  :: IS_SUSPECT(1) -> i = 1; goto alone
  :: !IS_SUSPECT(0) && !IS_SUSPECT(1) && (IS_READY(0) || IS_READY(1)) -> goto together
#else
  :: IS_READY(0) || IS_READY(1) -> goto together
#endif
  :: IS_OVER -> goto gone
  fi;
alone:
  if
  :: starts[i] >= DEADLY -> refuse(i); goto next
  :: else -> skip
  fi;
#ifndef NO_FIRST
  start(i);
#endif
  DIE;
  if
  :: i == 1 -> KILLED
  :: else -> skip
  fi;
#ifdef NO_FIRST
  start(i);
#endif
  finish(i);
  goto next;
together:
  /* Bit 0 and 1: the lanes of the pass. */
  i = 0;
  if
  :: IS_READY(0) ->
     if
     :: IS_SUSPECT(0) && starts[0] >= DEADLY -> refuse(0)
     :: else ->
        i = i + 1;
#ifndef NO_FIRST
        start(0)
#endif
     fi
  :: else -> skip
  fi;
  DIE;
  if
  :: IS_READY(1) ->
     if
     :: IS_SUSPECT(1) && starts[1] >= DEADLY -> refuse(1)
     :: else ->
        i = i + 2;
#ifndef NO_FIRST
        start(1)
#endif
     fi
  :: else -> skip
  fi;
  DIE;
  if
  :: i >= 2 -> KILLED
  :: else -> skip
  fi;
  if
  :: i == 1 -> finish(0)
  :: else -> skip
  fi;
  i = 0;
  goto next;
dead:
  /* The successor: it has the words of the segment alone. */
  i = 0;
#ifdef NO_LOG
  starts[0] = 0; starts[1] = 0;
#endif
  goto next;
gone:
  skip
}

proctype Session(byte lane) {
  byte n, done;
  do
  :: done < ROUNDS ->
     /* Two numbers that alternate: what was noted of one must not count for the next but one. */
     n = (n % 2) + 1;
     if :: lane == 1 -> kills = 0 :: else -> skip fi;
     flag[lane] = n;
     (ack[lane] == flag[lane]);
     assert(refused[lane] == lane);
     done++
  :: else -> break
  od;
  num_over++
}

init {
  atomic {
    run Rank();
    run Session(0);
    run Session(1)
  }
}
