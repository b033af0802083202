/* SPDX-License-Identifier: Apache-2.0
 *
 * The flag protocol between machines (docs/protocol.md, R13 ... R16), for SPIN: one lane of one
 * session, with one result slot, and RANKS ranks. tests/protocol/network_model_test.py runs it.
 *
 * Memory is private to a process: what others put into it comes in messages that it stores itself.
 * Messages travel on connections that the session's process opens. They arrive in the order of
 * their connection, as late as they like, also after it was given up, or never if it broke; but
 * descriptors and results, which may be long, also come behind what left later. Either process is
 * replaced at any time by one with blank memory, and the old one goes on: it was thought dead behind
 * a partition. With GIVES a session may give the slot of an open round to another rank.
 *
 * Claims. A session accepts no result but that of its own row. Nothing is stored into a row that is
 * being read, and nothing comes that its receiver would end the connection for. When nothing can
 * happen any more, the process that has the session's place has ended all its rounds; and every run
 * is finite. Each of these names leaves out a rule, and is refuted:
 *   NO_EPOCH NO_CONNECTION FORGETS_EPOCH   R13
 *   FLAG_FIRST STORES_AGAIN                R14
 *   NO_COUNT NO_RESULT_COUNT COUNTS_ON     R14
 *   NO_RESEND NO_KEEP                      R15
 *   NO_FENCE STORES_ADOPTED NO_TAKEOVER    R16
 */

#ifndef RANKS
#define RANKS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* Of each process of the session. */
#endif
#ifndef BREAKS
#define BREAKS 1
#endif
#ifndef SESSION_LIVES
#define SESSION_LIVES 1
#endif
#ifndef RANK_LIVES
#define RANK_LIVES 1 /* Of rank 0. */
#endif
#define CONNECTIONS (SESSION_LIVES * (RANKS + RANK_LIVES - 1 + GIVES_MAX) + BREAKS)
#ifdef GIVES
#define GIVES_MAX 1
#else
#define GIVES_MAX 0
#endif
#define NUMBERS 4 /* Round numbers: 1 ... NUMBERS, then 1. */
#define NONE 255

/* hello: the session's epoch; welcome: flag, acknowledged; descriptor and results: round, row, and
 * which publication of the lane it is. */
mtype = { nothing, hello, welcome, descriptor, results };

chan up[CONNECTIONS] = [2] of { mtype, byte, byte, byte };
chan down[CONNECTIONS] = [2] of { mtype, byte, byte, byte };
bool broken[CONNECTIONS];
byte from[CONNECTIONS]; /* The epoch of the session's process that opened it. */
byte to[CONNECTIONS];   /* The process of the rank that it leads to. */
byte num_connections;

byte epoch;          /* Of the session's place, as the leader hands it out. */
byte address[RANKS]; /* The process that has the place of a rank. */
byte num_processes;
byte rounds_done[SESSION_LIVES + 1];

#define TAKE(may, channel, end, me, i) \
    (may && i < num_connections && end[i] == me && nempty(channel[i])) -> \
    channel[i]?what(x, y, n); c = i

/* The second message comes before the first, which may be long. Hello and welcome are short. */
#define OVERTAKE(channel) \
    if \
    :: true \
    :: (what == descriptor || what == results) && nempty(channel[c]) -> \
        channel[c]!what(x, y, n); \
        channel[c]?what(x, y, n) \
    fi

/* R4, of one rank: nothing of this process's own is open there. What it knows of a predecessor's
 * round, or of one that it gave away, holds back only what would be stored to that rank. */
#define OWES_NOTHING(i) (!is_wanted[i] || published[i] == acknowledged[i])
#define MAY_STORE(i) (is_known[i] && published[i] == acknowledged[i])
#define NEEDS_CONNECTION(i) \
    (current[i] == NONE || broken[current[i]] || to[current[i]] != address[i])
#if RANKS > 1
#define STANDS(n) (n == result_flag || n == published[0] || n == published[1])
#define ALL_OWE_NOTHING (OWES_NOTHING(0) && OWES_NOTHING(1))
#else
#define STANDS(n) (n == result_flag || n == published[0])
#define ALL_OWE_NOTHING OWES_NOTHING(0)
#endif

#ifdef NO_RESULT_COUNT
#define IS_NEWS(n, taken) true
#else
#define IS_NEWS(n, taken) (n > taken)
#endif

/* What is sent on a broken connection is lost. */
#define SEND(channel, i, kind, a, b, number) \
    if \
    :: i != NONE && !broken[i] -> assert(nfull(channel[i])); channel[i]!kind(a, b, number) \
    :: else \
    fi

proctype rank_process(byte me; byte epoch_seen) {
    byte flag, acknowledged, row;
    byte kept;           /* The results of the round acknowledged last. */
    byte current = NONE; /* The connection. */
    byte executed;       /* The row as it was when the execution began. */
    byte sent, taken;    /* Publications of the lane; taken: the last one on this connection. */
    bool is_executing, is_storing;
    mtype what = nothing;
    byte x, y, n, c;
end_rank:
    do
    :: atomic { if
        :: TAKE(!is_storing, up, to, me, 0)
#if CONNECTIONS > 1
        :: TAKE(!is_storing, up, to, me, 1)
#endif
#if CONNECTIONS > 2
        :: TAKE(!is_storing, up, to, me, 2)
#endif
#if CONNECTIONS > 3
        :: TAKE(!is_storing, up, to, me, 3)
#endif
#if CONNECTIONS > 4
        :: TAKE(!is_storing, up, to, me, 4)
#endif
#if CONNECTIONS > 5
        :: TAKE(!is_storing, up, to, me, 5)
#endif
        fi;
        OVERTAKE(up);
        if
        :: what == hello ->
            if
#ifdef NO_EPOCH
            :: true ->
#else
            :: x > epoch_seen || (x == epoch_seen && (current == NONE || c > current)) ->
#endif
                epoch_seen = x;
                current = c;
#ifndef COUNTS_ON
                taken = 0;
#endif
                SEND(down, c, welcome, flag, acknowledged, 0)
#ifndef NO_EPOCH
            :: else
#endif
            fi
        :: what == descriptor ->
            if
#ifndef NO_CONNECTION
            :: c != current
#endif
#ifndef STORES_AGAIN
            :: c == current && flag == x ->
                if
#ifndef NO_KEEP
                :: acknowledged == x -> SEND(down, current, results, x, kept, sent)
#endif
                :: else
                fi
#endif
#ifndef NO_COUNT
            /* It was sent again, and later ones say that it is over. */
            :: c == current && flag != x && n <= taken
#endif
            :: else ->
#ifdef STORES_AGAIN
                assert(!is_executing);
#else
                assert(flag == acknowledged); /* R4 */
#endif
                taken = n;
                is_storing = true;
#ifdef FLAG_FIRST
                flag = x
#else
                row = y
#endif
            fi
        fi;
        if
        :: !is_storing -> what = nothing; x = 0; y = 0; n = 0; c = 0
        :: else
        fi }
    :: atomic { is_storing ->
        row = y;
        flag = x;
        is_storing = false; what = nothing; x = 0; y = 0; n = 0; c = 0 }
    :: atomic { !is_executing && flag != acknowledged -> executed = row; is_executing = true }
    :: atomic { is_executing ->
        assert(executed == row);
        kept = row;
        acknowledged = flag;
        is_executing = false; executed = 0;
        sent++;
        SEND(down, current, results, acknowledged, kept, sent) }
    od
}

proctype session_process(byte me) {
    byte current[RANKS];      /* The connection to a rank. */
    byte published[RANKS];    /* The flag that stands there, or will. */
    byte acknowledged[RANKS]; /* As far as it has arrived. */
    byte sent[RANKS];         /* Publications. */
    byte taken[RANKS];        /* The last of the rank's on this connection. */
    bool is_open[RANKS];      /* The welcome of the connection came. */
    bool is_known[RANKS];     /* Both words are meant: a welcome came since. */
    bool is_wanted[RANKS];    /* The round published is this process's own, and not given away. */
    byte result_flag, result_row;
    byte round, row, num_rows;
    bool is_waiting, has_given;
    mtype what = nothing;
    byte x, y, n, c, r;
    d_step {
        for (r : 0 .. RANKS - 1) { current[r] = NONE }
        r = 0
#ifdef NO_TAKEOVER
        for (r : 0 .. RANKS - 1) { is_known[r] = true }
        r = 0
#endif
    }
end_session:
    do
    /* Opens a connection where there is none, or it broke, or another process has the place. */
    :: atomic { NEEDS_CONNECTION(0) -> r = 0; goto connect }
#if RANKS > 1
    :: atomic { NEEDS_CONNECTION(1) -> r = 1; goto connect }
#endif
    :: atomic { if
        :: TAKE(true, down, from, me, 0)
#if CONNECTIONS > 1
        :: TAKE(true, down, from, me, 1)
#endif
#if CONNECTIONS > 2
        :: TAKE(true, down, from, me, 2)
#endif
#if CONNECTIONS > 3
        :: TAKE(true, down, from, me, 3)
#endif
#if CONNECTIONS > 4
        :: TAKE(true, down, from, me, 4)
#endif
#if CONNECTIONS > 5
        :: TAKE(true, down, from, me, 5)
#endif
        fi;
        OVERTAKE(down);
        goto arrived }
    :: atomic { !is_waiting && num_rows < ROUNDS && MAY_STORE(0) && ALL_OWE_NOTHING ->
        r = 0; goto publish }
#if RANKS > 1
    :: atomic { !is_waiting && num_rows < ROUNDS && MAY_STORE(1) && ALL_OWE_NOTHING ->
        r = 1; goto publish }
#endif
    :: atomic { is_waiting && result_flag == round ->
        assert(result_row == row);
        is_waiting = false;
        row = 0; /* Not meant any more; one value less to tell apart. */
        rounds_done[me]++ }
#ifdef GIVES
    /* Gives the slot of rank 0 to rank 1. */
    :: atomic { is_waiting && !has_given && is_wanted[0] && MAY_STORE(1) &&
                result_flag != round ->
        has_given = true;
        is_wanted[0] = false;
#ifdef NO_FENCE
        acknowledged[0] = NONE; is_wanted[0] = true;
#else
        is_known[0] = false; published[0] = 0; acknowledged[0] = 0; current[0] = NONE;
        is_open[0] = false;
#endif
        num_rows--; r = 1; goto publish }
#endif
    od;

connect:
    atomic {
        c = num_connections;
        assert(c < CONNECTIONS);
        from[c] = me;
        to[c] = address[r];
        num_connections++;
        current[r] = c;
        is_open[r] = false;
#ifndef COUNTS_ON
        taken[r] = 0;
#endif
        up[c]!hello(me, 0, 0);
        c = 0; r = 0;
        goto end_session
    }

publish:
    atomic {
        num_rows++;
        row = me * 8 + num_rows;
        do
        :: true ->
            round = (round % NUMBERS) + 1;
            if
            :: STANDS(round)
            :: else -> break
            fi
        od;
        published[r] = round;
        is_wanted[r] = true;
        is_waiting = true;
        sent[r]++;
        if
        :: is_open[r] -> SEND(up, current[r], descriptor, round, row, sent[r])
        :: else
        fi;
        r = 0;
        goto end_session
    }

arrived:
    atomic {
        r = 0;
#if RANKS > 1
        if
        :: to[c] == address[1] -> r = 1
        :: else
        fi;
#endif
        if
#ifndef NO_CONNECTION
        :: c != current[r]
#endif
        :: else ->
            if
            :: what == welcome -> is_open[r] = true
            :: else
            fi;
            if
            :: what == welcome && (!is_known[r] || !is_wanted[r]) ->
                /* A predecessor's round, or one that was given away: let it end (R10). */
                published[r] = x; acknowledged[r] = y;
                is_known[r] = true; is_wanted[r] = false
            :: what == welcome && is_known[r] && is_wanted[r] ->
#ifndef NO_RESEND
                if
                :: published[r] != acknowledged[r] ->
                    SEND(up, c, descriptor, published[r], row, sent[r])
                :: else
                fi
#else
                skip
#endif
            :: what == results && is_open[r] && IS_NEWS(n, taken[r]) && acknowledged[r] != x ->
                assert(published[r] == x);
                acknowledged[r] = x;
                taken[r] = n;
                if
#ifdef STORES_ADOPTED
                :: true
#else
                :: is_wanted[r]
#endif
                    -> result_row = y; result_flag = x
                :: else
                fi
            :: else
            fi
        fi;
        what = nothing; x = 0; y = 0; n = 0; c = 0; r = 0;
        goto end_session
    }
}

/* What the world does. */
init {
    byte breaks_left = BREAKS;
    byte session_lives = SESSION_LIVES;
    byte rank_lives = RANK_LIVES;
    byte c;
    atomic {
        run rank_process(0, 1); rank_lives--;
#if RANKS > 1
        address[1] = RANK_LIVES;
        run rank_process(RANK_LIVES, 1);
#endif
        num_processes = 1;
        epoch = 1; session_lives--;
        run session_process(1)
    }
end_world:
    do
    :: atomic { breaks_left > 0 && num_connections > 0 ->
        breaks_left--;
        select(c : 0 .. num_connections - 1);
        broken[c] = true;
        c = 0 }
    :: atomic { session_lives > 0 ->
        session_lives--; epoch++;
        run session_process(epoch) }
    :: atomic { rank_lives > 0 ->
        rank_lives--;
        address[0] = num_processes;
#ifdef FORGETS_EPOCH
        run rank_process(num_processes, 0);
#else
        run rank_process(num_processes, epoch);
#endif
        num_processes++ }
    :: atomic { timeout ->
        assert(rounds_done[epoch] == ROUNDS);
        break }
    od
}
