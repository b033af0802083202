/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds in two phases between machines (docs/protocol.md, R17), for SPIN: one session and one
 * rank. Its words as in schedule/layout/two_phase_control.h; a round has one block, which is one
 * row, whose value says which call it is of. `docs/protocol/model_check.py rounds` searches it.
 *
 * Memory is private to a process, and messages arrive in the order of their connection, as late as
 * they like, or never if it broke. A connection is ended by either side whenever it likes. Either
 * process is replaced at any time by one with blank memory. The old one says nothing more: R13,
 * which network.pml has, sees to that, and to connections being taken in their order.
 *
 * A process is two threads: one stores what arrives, the other works; each branch is one step of
 * one of them.
 *
 * Claims. A session combines no result but that of its own row. A rank's offer is not stored to
 * while it is read. When nothing can happen any more, the session has ended all its calls and may
 * begin another, and the rank has no round open. Each of these names leaves out a rule, and is
 * refuted:
 *   NO_REFUSAL   the session takes a round whose connection ended as refused
 *   NO_LET_GO    ... and as acknowledged
 *   NO_CLOSE     the rank takes it as closed
 *   NO_SILENCE   the rank says nothing more of it
 *   NO_NUMBER    an offer is refused whose number the rank acknowledged last
 *   NO_ANSWERED  ... or answered last
 *   NO_WAIT      ... and one that comes before the rank has let go of the last
 */

#ifndef CALLS
#define CALLS 2 /* Of each process of the session. */
#endif
#ifndef BREAKS
#define BREAKS 1
#endif
#ifndef SESSION_LIVES
#define SESSION_LIVES 2
#endif
#ifndef RANK_LIVES
#define RANK_LIVES 1
#endif
#define CONNECTIONS (SESSION_LIVES + RANK_LIVES - 1 + BREAKS)
#define NUMBERS 3 /* Round numbers: 1 ... NUMBERS, then 1. */
#define ROOM 6
#define NONE 255

mtype = { hello, welcome, offer, row, closed, granted, refused, returned, acknowledged };

/* Kind, round, row. */
chan up[CONNECTIONS] = [ROOM] of { mtype, byte, byte };
chan down[CONNECTIONS] = [ROOM] of { mtype, byte, byte };
bool broken[CONNECTIONS];     /* What is sent on it is lost; what was sent may arrive. */
byte to[CONNECTIONS];         /* The process of the rank that it leads to. */
byte num_connections;
byte session_life, rank_life; /* The process that has the place. */
byte num_calls;               /* Of all processes: the value of the last row. */
bool has_round[RANK_LIVES];   /* Whether that process of the rank has one open. */

#define SEND(channel, i, kind, a, b) \
    if \
    :: i != NONE && !broken[i] -> channel[i]!kind(a, b) \
    :: else \
    fi

/* What the rank says of a round, and to whom. */
inline say(kind, round, value) {
    if
#ifndef NO_SILENCE
    :: is_lost
#endif
    :: else -> SEND(down, current, kind, round, value)
    fi
}

inline refuse(round) {
    SEND(down, current, refused, round, 0);
    SEND(down, current, acknowledged, round, 0)
}

inline lose_at_rank() {
    is_lost = true;
#ifndef NO_CLOSE
    closed_round = offered
#endif
}

proctype rank_process(byte life) {
    byte current = NONE;
    bool is_lost = true;             /* What is offered is not of the current connection. */
    byte offered, closed_round, got; /* What arrived of the session's words, and its row. */
    byte acked, answered;            /* The own words, and how it was answered: */
    bool is_answer_no;
    byte open_round, result;
    bool is_reading, is_granted, is_returned;
    mtype what = hello;
    byte x, y;
end_rank:
    do
    :: rank_life != life -> break
    /* The thread that receives. */
    :: atomic { num_connections > 0 && to[num_connections - 1] == life &&
                current != num_connections - 1 && nempty(up[num_connections - 1]) ->
        up[num_connections - 1]?what(x, y);
        current = num_connections - 1;
        lose_at_rank();
        SEND(down, current, welcome, 0, 0);
        x = 0; y = 0 }
    :: atomic { current != NONE && nempty(up[current]) ->
        up[current]?what(x, y);
        if
        :: what == offer ->
            if
#ifndef NO_WAIT
            :: offered != acked -> refuse(x)
#endif
#ifndef NO_NUMBER
            :: offered == acked && x == acked -> refuse(x)
#endif
#ifndef NO_ANSWERED
            :: offered == acked && x != acked && x == answered -> refuse(x)
#endif
            :: else ->
                assert(!is_reading);
                offered = x;
                got = 0;
                closed_round = 0;
                is_lost = false
            fi
        :: what == row && x == offered && !is_lost -> got = y
        :: what == closed && x == offered && !is_lost -> closed_round = x
        :: else
        fi;
        what = hello; x = 0; y = 0 }
    :: atomic { current != NONE && broken[current] ->
        current = NONE;
        lose_at_rank() }
    /* The data thread. */
    :: atomic { open_round == 0 && offered != acked -> open_round = offered;
        has_round[life] = true; is_reading = true }
    :: atomic { is_reading ->
        is_reading = false;
        if
        :: closed_round == open_round || offered != open_round
        /* What stands there is taken for its answer, and not said again. */
        :: else ->
            if
            :: answered == open_round -> is_granted = !is_answer_no
            :: answered != open_round ->
                answered = open_round;
                is_answer_no = false;
                is_granted = true;
                say(granted, open_round, 0)
            /* There is no memory. */
            :: answered != open_round ->
                answered = open_round;
                is_answer_no = true;
                say(refused, open_round, 0)
            fi
        fi }
    :: atomic { is_granted && !is_returned && got != 0 && offered == open_round ->
        result = got;
        is_returned = true;
        say(returned, open_round, result) }
    :: atomic { open_round != 0 && !is_reading &&
                (closed_round == open_round || offered != open_round) ->
        acked = open_round;
        say(acknowledged, acked, 0);
        has_round[life] = false;
        open_round = 0; is_granted = false; is_returned = false; result = 0 }
    od
}

inline lose_at_session() {
    current = NONE;
    is_open = false;
    if
    :: acked != offered ->
        is_lost = true;
#ifndef NO_REFUSAL
        answer = refused;
#endif
#ifndef NO_LET_GO
        acked = offered
#endif
    :: else
    fi
}

#define NEEDS_CONNECTION (current == NONE || broken[current] || known_rank != rank_life)
#define STANDS(n) (n == offered || n == acked || n == granted_word)

proctype session_process(byte life) {
    byte current = NONE, known_rank;
    bool is_open, is_lost;
    byte offered, acked, granted_word, result; /* The own word, and what arrived of the rank's. */
    mtype answer = hello;                      /* To the offer: granted, refused; else none yet. */
    byte call, done;                           /* call: the value of its row. */
    bool has_sent;
    mtype what = hello;
    byte x, y;
    do
    :: session_life != life -> break
    /* The thread that receives. */
    :: atomic { session_life == life && num_connections < CONNECTIONS &&
                NEEDS_CONNECTION ->
        lose_at_session();
        if :: num_connections > 0 -> broken[num_connections - 1] = true :: else fi;
        current = num_connections;
        known_rank = rank_life;
        to[current] = rank_life;
        num_connections++;
        SEND(up, current, hello, 0, 0) }
    :: atomic { current != NONE && nempty(down[current]) ->
        down[current]?what(x, y);
        if
        :: what == welcome -> is_open = true
        :: what != welcome && x == offered && !is_lost ->
            if
            :: what == granted && answer == hello -> answer = granted; granted_word = x
            :: what == refused -> answer = refused; granted_word = x
            :: what == returned -> result = y
            :: what == acknowledged -> acked = x
            :: else
            fi
        :: else
        fi;
        what = hello; x = 0; y = 0 }
    /* The data thread. A call that is refused goes through the windows. */
    :: atomic { call == 0 && done < CALLS && offered == acked ->
        num_calls++;
        call = num_calls;
        x = offered;
        do
        :: x = x % NUMBERS + 1;
            if :: !STANDS(x) -> break :: else fi
        od;
        offered = x;
        result = 0;
        answer = hello;
        is_lost = !is_open;
        if
        :: is_lost -> answer = refused; acked = offered
        :: else -> SEND(up, current, offer, offered, 0)
        fi;
        x = 0 }
    :: atomic { call != 0 && answer == granted && !has_sent ->
        has_sent = true;
        if :: is_lost :: else -> SEND(up, current, row, offered, call) fi }
    :: atomic { call != 0 && (answer == refused || (has_sent && result != 0)) ->
        assert(answer == refused || result == call);
        if :: is_lost :: else -> SEND(up, current, closed, offered, 0) fi;
        call = 0;
        has_sent = false;
        done++ }
    /* The place has all that it wanted: nothing more happens unless somebody dies. */
    :: done == CALLS && offered == acked && !NEEDS_CONNECTION -> goto end_done
    od;
    goto over;
end_done:
    session_life != life;
over:
    skip
}

/* Connections end, and processes are replaced. */
active proctype misfortune() {
    byte breaks;
    run session_process(0);
    run rank_process(0);
    do
    :: atomic { breaks < BREAKS && num_connections > 0 && !broken[num_connections - 1] ->
        broken[num_connections - 1] = true; breaks++ }
    :: atomic { session_life + 1 < SESSION_LIVES ->
        session_life++; run session_process(session_life) }
    :: atomic { rank_life + 1 < RANK_LIVES ->
        if :: num_connections > 0 -> broken[num_connections - 1] = true :: else fi;
        rank_life++; run rank_process(rank_life) }
    :: timeout -> assert(!has_round[rank_life]); break
    od
}
