/*
 * Held commands (state/command/defer.c, command.c, event.c): program threads that enqueue and wait, one that
 * sets user events, the callback thread, a driver that ends commands, a mover that moves, suspends
 * and resumes. README.md says what is proved, what is left out, the scenarios, and what each
 * BREAK_... takes away.
 */

#define NONE 255

/*
 * A scenario: COMMANDS in QUEUES, each command's queue, what it waits for (bits of events), whether
 * it waits for all before it, blocks all after it, and where its memory is; what each thread does.
 * Event c is that of command c; user events follow. Commands of a queue are enqueued in the order of
 * their numbers, by one thread.
 */
#define ENQUEUE 1
#define SET     2 /* a user event */
#define FAIL    3 /* a user event, with an error */
#define WAIT    4 /* clWaitForEvents of one event, up to its driver's part */
#define FINISH  5 /* hold_wait_queue */
#define MOVE    6 /* the first seat to another device */
#define SUSPEND 7
#define RESUME  8

#if SCENARIO == 1
/* In order: one that waits for the program, what follows it, and a wait for all of it. */
#define COMMANDS 3
#define USERS    1
#define QUEUES   1
#define SEATS    1
#define IN_ORDER(q)  true
#define SETUP waits[0] = 1 << 3
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, ENQUEUE, 2); op(0, FINISH, 0); \
    op(1, SET, 3); \
    op(2, SUSPEND, 0); op(2, RESUME, 0)
#elif SCENARIO == 2
/* Out of order: commands, a barrier, and one behind it; moved meanwhile. */
#define COMMANDS 4
#define USERS    1
#define QUEUES   1
#define SEATS    1
#define IN_ORDER(q)  false
#define SETUP waits[0] = 1 << 4; all[2] = true; blocks[2] = true
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, ENQUEUE, 2); op(0, ENQUEUE, 3); op(0, WAIT, 3); \
    op(1, SET, 4); \
    op(2, MOVE, 0)
#elif SCENARIO == 3
/* Two devices: a command waits for one on the other device, and that one for the program. */
#define COMMANDS 2
#define USERS    1
#define QUEUES   2
#define SEATS    2
#define IN_ORDER(q)  true
#define SETUP waits[0] = 1 << 2; on[1] = 1; waits[1] = 1 << 0
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); \
    op(1, SET, 2); \
    op(2, WAIT, 1)
#elif SCENARIO == 4
/* Two threads, two queues of one device, two user events; one thread waits for all. */
#define COMMANDS 3
#define USERS    2
#define QUEUES   2
#define SEATS    1
#define IN_ORDER(q)  true
#define SETUP \
    waits[0] = 1 << 3; on[1] = 1; waits[1] = (1 << 0) | (1 << 4); on[2] = 1
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, SET, 4); op(0, WAIT, 0); \
    op(1, ENQUEUE, 1); op(1, ENQUEUE, 2); op(1, FINISH, 1); \
    op(2, SET, 3)
#elif SCENARIO == 5
/* A user event that ends in error: what waited for it is given up, what follows goes. */
#define COMMANDS 3
#define USERS    1
#define QUEUES   1
#define SEATS    1
#define IN_ORDER(q)  true
#define SETUP waits[0] = 1 << 3; waits[1] = 1 << 0; given_up = 3
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, ENQUEUE, 2); op(0, FINISH, 0); \
    op(1, FAIL, 3); \
    op(2, WAIT, 1)
#elif SCENARIO == 6
/* Memory that has to be brought first, for a held command and for one that is not. */
#define COMMANDS 3
#define USERS    1
#define QUEUES   2
#define SEATS    2
#define IN_ORDER(q)  true
#define SETUP \
    waits[0] = 1 << 3; absent[0] = true; on[2] = 1; absent[2] = true
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, FINISH, 0); \
    op(1, SET, 3); \
    op(2, ENQUEUE, 2); op(2, WAIT, 2)
#elif SCENARIO == 7
/* The same, but the link fails: the command is given up, and nobody tries for ever. */
#define COMMANDS 2
#define USERS    1
#define QUEUES   1
#define SEATS    2
#define IN_ORDER(q)  true
#define SETUP waits[0] = 1 << 2; absent[0] = true; link_fails = true; given_up = 1
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, FINISH, 0); \
    op(1, SET, 2)
#else
/* Two devices: a queue moves away from an event that its held command waits for. */
#define COMMANDS 2
#define USERS    1
#define QUEUES   2
#define SEATS    2
#define IN_ORDER(q)  true
#define SETUP \
    on[0] = 1; on[1] = 0; waits[1] = (1 << 0) | (1 << 2); place[0] = 1
#define SCRIPT \
    op(0, ENQUEUE, 0); op(0, ENQUEUE, 1); op(0, WAIT, 1); \
    op(1, SET, 2); \
    op(2, MOVE, 0)
#endif

#define EVENTS    (COMMANDS + USERS)
#define THREADS   3
#define CALLBACKS THREADS /* the callback thread's number */
#define OPS       8

/* ---- the program's, as its threads share it ---- */

/* Events. Guarded by engine_lock as in event.h: the state from HELD on, not what drivers set. */
#define HELD   0
#define ISSUED 1
#define DONE   2
byte state[EVENTS], event_place[EVENTS];
bool error[EVENTS];               /* status < 0 */
bool wanted[EVENTS], watched[EVENTS], ended[EVENTS];

/* Queues: one a seat where there are several seats. */
byte place[QUEUES];               /* of the real queue */
bool real[QUEUES];
byte held_count[QUEUES];
bool pumping[QUEUES];

/* Commands. */
byte on[COMMANDS], waits[COMMANDS];
bool all[COMMANDS], blocks[COMMANDS], absent[COMMANDS];
bool listed[COMMANDS];            /* on its queue's list of held ones */
bool spoilt[COMMANDS];            /* what it uses could not be brought: held.error */
bool link_fails;
byte given_up;                    /* bits: those that must not be issued */

/* The gate, and who sleeps. What is done under engine_lock is one step: nothing else looks at it in
 * between, but at states, which are set last. */
bool gate_closed;
byte inside;
bool sleeps_engine[THREADS], sleeps_woken[THREADS];

/* The callback thread's list, as a number: its jobs are all the same. */
byte posted;

/* The drivers. */
bool issued[COMMANDS], ran[COMMANDS], registered[COMMANDS];
byte dropped, brings, finished;

byte ops[THREADS * OPS], args[THREADS * OPS], op_count[THREADS];

inline op(thread, what, which) {
    ops[thread * OPS + op_count[thread]] = what;
    args[thread * OPS + op_count[thread]] = which;
    op_count[thread]++
}

/* ---- gate (proved by itself: gate.pml) ---- */

inline enter() {
    atomic { !gate_closed -> inside++ }
}
inline leave() {
    inside--
}
inline close() {
    atomic { !gate_closed -> gate_closed = true };
    inside == 0
}
inline open() {
    gate_closed = false
}

/* pthread_cond_broadcast(&engine_changed), under the lock. */
inline changed() {
    d_step {
        k = 0;
        do :: k < THREADS -> sleeps_engine[k] = false; k++ :: else -> break od;
        k = 0
    }
}

/* ---- defer.c: what can go ---- */

#define CAN_WAIT(e, p) \
    (state[e] == DONE || (state[e] == ISSUED && (event_place[e] == (p) || ended[e])))
#define WAITS_FOR(c, e) ((waits[c] >> (e)) & 1)

/* Of the wait list of @c: ready, whether all can be left to a driver in @p; bad, whether one ended
 * in error. */
inline look_at_waits(c, p) {
    d_step {
        ready = true;
        bad = false;
        k = 0;
        do
        :: k < EVENTS ->
            if
            :: WAITS_FOR(c, k) ->
                ready = ready && CAN_WAIT(k, p);
                bad = bad || (state[k] == DONE && error[k])
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0
    }
}

/* behind_barrier: under the lock. */
inline look_behind(c) {
    d_step {
        behind = false;
        some = false;
        k = 0;
        do
        :: k < COMMANDS ->
            if
            :: listed[k] && on[k] == on[c] -> some = true; behind = behind || blocks[k]
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0;
#ifndef BREAK_BEHIND_BARRIERS
        behind = some && (behind || (all[c] && waits[c] == 0))
#else
        behind = some && all[c] && waits[c] == 0
#endif
    }
}

/* pick: under the lock. */
inline pick(q, p) {
    d_step {
        picked = NONE;
        some = false;
        behind = false;
        n = 0;
        do
        :: n < COMMANDS && !behind && picked == NONE ->
            if
            :: listed[n] && on[n] == q ->
                ready = true;
                k = 0;
                do
                :: k < EVENTS ->
                    ready = ready && (!WAITS_FOR(n, k) || CAN_WAIT(k, p));
                    k++
                :: else -> break
                od;
                k = 0;
#ifdef BREAK_READY
                ready = true;
#endif
                if
#ifndef BREAK_WAITS_FOR_ALL
                :: ready && (!some || !(all[n] && waits[n] == 0)) -> picked = n
#else
                :: ready -> picked = n
#endif
                :: else -> behind = IN_ORDER(q) || blocks[n]
                fi;
                some = true
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0
    }
}

/* ---- event.c ---- */

/* The driver calls back as soon as the command has ended, which may be now. */
inline watch(e) {
    atomic {
        if
        :: state[e] == ISSUED && !watched[e] -> watched[e] = true; registered[e] = true
        :: else
        fi
    }
}

/* event_watch: whoever finds the other's mark watches. */
inline event_watch(e) {
#ifndef BREAK_WATCHES_LATE
    wanted[e] = true;
#endif
    watch(e)
}

inline event_finish(e, status) {
    atomic {
        error[e] = status;
        state[e] = DONE;
        changed()
    }
}

/* ---- command.c ---- */

/*
 * A driver is given a command: once, in order, when all that it waits for is there or can be left to
 * that driver.
 */
inline issue(c, p) {
    d_step {
        assert(!issued[c]);
        assert(!((given_up >> c) & 1));
        assert(!absent[c]);
        assert(real[on[c]] && place[on[c]] == p);
        issued[c] = true;
        k = 0;
        do
        :: k < EVENTS ->
            assert(!WAITS_FOR(c, k) || CAN_WAIT(k, p));
            k++
        :: else -> break
        od;
        k = 0;
        do
        :: k < COMMANDS ->
            /* Those before it in its queue, and those behind a barrier. */
            assert(k >= c || on[k] != on[c] || issued[k] || ((dropped >> k) & 1) ||
                   !(IN_ORDER(on[c]) || blocks[k] || (all[c] && waits[c] == 0)));
            assert(k <= c || on[k] != on[c] || !issued[k] ||
                   !(IN_ORDER(on[c]) || blocks[c] || (all[k] && waits[k] == 0)));
            k++
        :: else -> break
        od;
        k = 0
    }
}

inline give_up(c) {
    assert(!issued[c] && !((dropped >> c) & 1) && ((given_up >> c) & 1));
    dropped = dropped | (1 << c)
}

/* Result in failed. */
inline bring(c) {
    close();
    brings++;
    assert(brings <= 4); /* nobody tries for ever */
    failed = link_fails;
    absent[c] = failed && absent[c];
    open()
}

/* Taken off the list. */
inline unlink(c) {
    listed[c] = false;
    held_count[on[c]]--;
#ifndef BREAK_UNLINKED_TELLS
    changed()
#else
    skip
#endif
}

#define FORGET ready = false; bad = false; behind = false; some = false

/* pick, and the end of pumping where there is nothing more. */
inline pick_or_end(q, p) {
#ifndef BREAK_LAST_LOOK
    atomic {
        pick(q, p);
        pumping[q] = picked != NONE;
        FORGET
    }
#else
    pick(q, p);
    pumping[q] = picked != NONE
#endif
}

/* pump_inside, up to its first pick. Entering the gate, and looking at what only a mover changes,
 * is one step with what follows: inside, others' steps could as well have come before. */
inline pump_begins(q) {
    atomic {
        !gate_closed -> inside++;
        p = place[q];
        if
        :: !real[q] /* suspended: whoever resumes it pumps again */
#ifndef BREAK_ONE_PUMPS
        :: real[q] && pumping[q]
        :: real[q] && !pumping[q] ->
#else
        :: real[q] ->
#endif
            pick(q, p);
#ifndef BREAK_LAST_LOOK
            pumping[q] = picked != NONE
#else
            pumping[q] = true;
            hold = true
#endif
        fi;
        FORGET
    };
#ifdef BREAK_LAST_LOOK
    if
    :: hold && picked == NONE -> pumping[q] = false
    :: else
    fi;
    hold = false
#endif
}

/* let_go of what was picked, and take it off the list. Result in again: it is absent. */
inline let_go(p) {
    atomic {
        look_at_waits(picked, p);
        again = !bad && !spoilt[picked] && absent[picked];
        bad = bad || spoilt[picked];
#ifdef BREAK_ERRORS
        bad = false;
#endif
#ifdef BREAK_BROUGHT
        again = false;
#endif
        if
        :: again
        :: !again && bad -> give_up(picked)
        :: !again && !bad ->
#ifdef BREAK_UNLINKED_LAST
            unlink(picked)
#else
            issue(picked, p)
#endif
        fi;
        ready = false
    };
    if
    :: again
    :: !again && bad -> event_finish(picked, true)
    :: !again && !bad ->
#ifdef BREAK_UNLINKED_LAST
        issue(picked, p);
#endif
        atomic { /* event_issued_late */
            event_place[picked] = p;
            state[picked] = ISSUED;
#ifndef BREAK_ISSUED_TELLS
            changed()
#endif
        };
        atomic {
            if
            :: wanted[picked] -> watch(picked)
            :: else
            fi
        }
    fi;
    atomic {
        if
        :: !again && listed[picked] -> unlink(picked)
        :: else
        fi;
        progress = progress || !again;
        bad = false
    }
}

/* hold_pump, in full: one process has it once. */
inline hold_pump() {
    progress = true;
    do
    :: progress ->
        progress = false;
        q = 0;
        do
        :: q < QUEUES ->
            again = held_count[q] != 0;
            do
            :: again ->
                again = false;
                pump_begins(q);
                do
                :: picked != NONE && !again ->
                    let_go(p);
                    if
                    :: !again -> pick_or_end(q, p)
                    :: else
                    fi
                :: else -> break
                od;
                leave();
                if
                :: again ->
                    bring(picked);
                    atomic {
#ifndef BREAK_GIVES_UP
                        spoilt[picked] = failed;
#endif
                        failed = false;
                        picked = NONE;
                        pumping[q] = false
                    }
                :: else
                fi
            :: else -> break
            od;
            q++
        :: else -> break
        od
    :: else -> break
    od;
    q = 0;
    p = 0
}

/* command_run, up to hold_pump. */
inline enqueue(c) {
    again = true;
    do
    :: again ->
        atomic {
            !gate_closed -> inside++;
            again = !real[on[c]];
            if
            :: !again ->
                p = place[on[c]];
                look_at_waits(c, p);
                hold = !ready || bad;
                FORGET
            :: else
            fi
        };
        if
        :: again ->
            leave();
            /* context_enter_slow: looked at and asleep under a lock of its own. */
            atomic {
                if
                :: !real[on[c]] -> sleeps_woken[me] = true
                :: else
                fi
            };
            !sleeps_woken[me]
        :: else ->
            if
            :: !hold && held_count[on[c]] != 0 ->
                atomic { look_behind(c); hold = IN_ORDER(on[c]) || behind; FORGET }
            :: else
            fi;
            if
            :: hold ->
                /* hold_add */
                n = 0;
                do
                :: n < EVENTS ->
                    if
                    :: WAITS_FOR(c, n) -> event_watch(n)
                    :: else
                    fi;
                    n++
                :: else -> break
                od;
                n = 0;
                d_step { listed[c] = true; held_count[on[c]]++ };
                leave();
#ifndef BREAK_ADDED_PUMPS
                pump = true
#endif
            :: !hold && absent[c] ->
                leave();
                bring(c);
                atomic {
                    again = !failed;
                    if
                    :: failed -> give_up(c) /* the call's own error */
                    :: else
                    fi;
                    failed = false
                }
            :: else ->
                atomic {
                    issue(c, p);
                    event_place[c] = p;
                    state[c] = ISSUED;
                    leave()
                }
            fi
        fi
    :: else -> break
    od;
    hold = false;
    p = 0
}

/* hold_wait_event, hold_wait_queue: looked at and asleep under the lock. */
#define QUEUE_HOLDS(x) held_count[x] != 0 /* the thread that waits has enqueued all of it */
inline sleep_while(condition) {
    do
    :: atomic { condition -> sleeps_engine[me] = true };
        !sleeps_engine[me]
    :: else -> break
    od
}

inline set_user_status(e, status) {
    event_finish(e, status);
#ifndef BREAK_SET_PUMPS
    pump = true
#endif
}

#define RAN(c) (!issued[c] || ran[c] || on[c] != 0)
#if COMMANDS > 3
#define DRAINED RAN(0) && RAN(1) && RAN(2) && RAN(3)
#elif COMMANDS > 2
#define DRAINED RAN(0) && RAN(1) && RAN(2)
#else
#define DRAINED RAN(0) && RAN(1)
#endif

/* The queues of seat 0. The mover owns everything: steps of its own need no interleaving. */
inline move(what) {
    close();
    if
    :: what != RESUME ->
        DRAINED; /* drivers end by themselves */
        /* event_vacate */
        n = 0;
        do
        :: n < COMMANDS ->
            if
            :: state[n] == ISSUED && on[n] == 0 -> event_finish(n, false)
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0;
        if
        :: what == MOVE -> place[0] = 2
        :: else -> real[0] = false
        fi
    :: else ->
        place[0] = 3;
        real[0] = true
    fi;
    open();
#ifndef BREAK_RESUME_WAKES
    /* context_wake */
    d_step {
        k = 0;
        do :: k < THREADS -> sleeps_woken[k] = false; k++ :: else -> break od;
        k = 0
    };
#endif
#ifndef BREAK_MOVE_PUMPS
    pump = true
#endif
}

/* ---- who does it ---- */

#define LOCALS \
    byte at, k, n, p, q, picked = NONE; \
    bool ready, bad, behind, some, progress, again, hold, failed, pump

proctype Thread(byte me) {
    LOCALS;
    do
    :: at < op_count[me] ->
        pump = false;
        if
        :: ops[me * OPS + at] == ENQUEUE -> enqueue(args[me * OPS + at])
        :: ops[me * OPS + at] == SET -> set_user_status(args[me * OPS + at], false)
        :: ops[me * OPS + at] == FAIL -> set_user_status(args[me * OPS + at], true)
        :: ops[me * OPS + at] == WAIT -> sleep_while(state[args[me * OPS + at]] == HELD)
        :: ops[me * OPS + at] == FINISH -> sleep_while(QUEUE_HOLDS(args[me * OPS + at]))
        :: ops[me * OPS + at] >= MOVE -> move(ops[me * OPS + at])
        fi;
        if
        :: pump -> hold_pump()
        :: else
        fi;
        pump = false;
        at++
    :: else -> break
    od;
    finished++
}

proctype Callbacks() {
    LOCALS;
end:
    do
    :: atomic { posted > 0 -> posted-- } ;
        hold_pump()
    od
}

/* Ends commands in any order, and calls back those who asked (ended_elsewhere). */
#define ENDS(c) \
    :: d_step { issued[c] && !ran[c] -> ran[c] = true } \
    :: d_step { registered[c] && ran[c] && !ended[c] -> ended[c] = true; posted++ }

proctype Driver() {
end:
    do
    ENDS(0)
    ENDS(1)
#if COMMANDS > 2
    ENDS(2)
#endif
#if COMMANDS > 3
    ENDS(3)
#endif
    od
}

init {
    byte k;
    d_step {
        k = 0;
        do :: k < QUEUES -> real[k] = true; place[k] = k * (SEATS - 1); k++ :: else -> break od;
        SETUP;
        SCRIPT;
        k = 0
    };
    atomic {
        run Thread(0); run Thread(1); run Thread(2);
        run Callbacks();
        run Driver()
    };
    /* Every thread comes to its end, and no command stays behind. */
    finished == THREADS;
    held_count[0] == 0;
#if QUEUES > 1
    held_count[1] == 0;
#endif
    do
    :: k < COMMANDS -> assert(issued[k] != ((given_up >> k) & 1)); assert(!listed[k]); k++
    :: else -> break
    od
}
