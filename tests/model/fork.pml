/*
 * The gate in the child of a fork (gate.c: in_child; fork.c: renew): a thread forks while others enter, leave and
 * close the gate; they are gone, and what they held is as they left it. In the child the thread that
 * forked and two new ones use the gate, or end without.
 *
 * Stores are not buffered here: fork is a system call.
 */

#define ALL    5
#define NOBODY 255
#define FORKER 0 /* others: 1 a program thread, 2 a mover, 3 and 4 the same in the child */

byte inside[ALL];
bool listed[ALL];  /* in the list */
bool known[ALL];   /* gate_thread.known */
bool gate_closed;
byte list_lock = NOBODY, closer_lock = NOBODY;
bool uses[ALL];
byte owner = NOBODY;
bool child;
byte finished;

#define LOCK(l)   atomic { l == NOBODY -> l = me }
#define UNLOCK(l) l = NOBODY

inline thread_known() {
    LOCK(list_lock);
    listed[me] = true;
    known[me] = true;
    UNLOCK(list_lock)
}

inline enter() {
    if
    :: !known[me] -> thread_known()
    :: else
    fi;
    do
    :: true ->
        inside[me] = 1;
        if
        :: !gate_closed -> break
        :: else
        fi;
        inside[me] = 0;
        !gate_closed
    od
}

inline use() {
    enter();
    atomic { uses[me] = true; assert(owner == NOBODY) };
    uses[me] = false;
    inside[me] = 0
}

inline own() {
    if
    :: !known[me] -> thread_known()
    :: else
    fi;
    LOCK(closer_lock);
    gate_closed = true;
    found = true;
    do
    :: found ->
        LOCK(list_lock);
        d_step { /* closer than in the C code; gate.pml looks at one after the other */
            t = 0;
            found = false;
            do
            :: t < ALL -> found = found || (listed[t] && t != me && inside[t] != 0); t++
            :: else -> break
            od;
            t = 0
        };
        UNLOCK(list_lock);
        if
        :: found -> (inside[0] == 0 || !listed[0]) && (inside[1] == 0 || !listed[1]) &&
                    (inside[3] == 0 || !listed[3])
        :: else
        fi
    :: else -> break
    od;
    atomic {
        owner = me;
        assert(!uses[0] && !uses[1] && !uses[3]) /* G1 */
    };
    owner = NOBODY;
    gate_closed = false;
    UNLOCK(closer_lock)
}

/* thread_exits: also of one that was never on the list of this process. */
inline exits() {
    if
#ifndef BREAK_EXIT
    :: known[me] ->
        LOCK(list_lock);
        listed[me] = false;
        known[me] = false;
        UNLOCK(list_lock)
    :: else
#else
    :: true ->
        LOCK(list_lock);
        t = 0;
        d_step {
            t = 0;
            do
            :: t < ALL -> listed[t] = listed[t] && known[me] && t != me; t++
            :: else -> break
            od;
            t = 0
        };
        known[me] = false;
        UNLOCK(list_lock)
#endif
    fi
}

proctype Program(byte me) provided (!child) {
    use()
}

proctype Mover(byte me) provided (!child) {
    byte t;
    bool found;
    own()
}

proctype ChildProgram(byte me) {
    use();
    finished++
}

proctype ChildMover(byte me) {
    byte t;
    bool found;
    if
    :: own()
    :: true /* nobody moves the child */
    fi;
    finished++
}

proctype Forker(byte me) {
    byte t;
    atomic {
        child = true;
        /* What the others were doing ends in the middle. */
        uses[1] = false;
        if
        :: owner == 2 -> owner = NOBODY
        :: else
        fi;
        /* gate.c: in_child; fork.c: renew */
#ifndef BREAK_LIST_LOCK
        list_lock = NOBODY;
#endif
#ifndef BREAK_CLOSER_LOCK
        closer_lock = NOBODY;
#endif
#ifndef BREAK_GATE_CLOSED
        gate_closed = false;
#endif
#ifndef BREAK_LIST
        listed[0] = false;
        listed[1] = false;
        listed[2] = false;
#endif
#ifndef BREAK_SELF
        known[me] = false;
#endif
        inside[me] = 0;
        run ChildProgram(3);
        run ChildMover(4)
    };
    if
    :: use()
    :: true
    fi;
    exits();
    finished++
}

init {
    atomic {
        /* It used OpenCL before, or did not. */
        if
        :: listed[FORKER] = true; known[FORKER] = true
        :: true
        fi;
        run Program(1);
        run Mover(2);
        run Forker(FORKER)
    };
    /* Those who are gone stay where they were, so a deadlock is what nobody can leave. */
    if
    :: finished == 3
    :: timeout -> assert(finished == 3)
    fi
}
