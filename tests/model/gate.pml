/*
 * The gate (state/base/threads/gate.c): program threads that enter, call back in and leave, and movers that close
 * it. README.md says what is proved, what is left out, and what each BREAK_... takes away.
 *
 * Each thread has a store buffer: what it stores in its flag with a plain store reaches memory any
 * time later, in order; only the thread itself sees it before. Loads read memory, in program order.
 */

#ifndef THREADS
#define THREADS 2
#endif
#ifndef MOVERS
#define MOVERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define ALL   (THREADS + MOVERS)
#define DEPTH 2
#define NOBODY 255

/* Memory. */
byte inside[ALL];       /* gate_thread.inside, as others see it */
bool listed[ALL];       /* on the list of threads */
bool gate_closed;
byte someone_left;      /* a futex; its value matters only while somebody sleeps on it */
byte list_lock = NOBODY, closer_lock = NOBODY;

/* Processors. */
byte buffered[THREADS], first[THREADS], second[THREADS];
byte mine[ALL];         /* the_thread.gate.inside, as the thread itself sees it */
bool owner_flag[ALL];   /* the_thread.gate.owner */

/* The kernel: who sleeps on which futex. */
bool sleeps_closed[ALL], sleeps_left[ALL];

/* What is checked: who does something to residences, and who owns them. */
bool uses[ALL];
byte owner = NOBODY;

#define LOCK(l)   atomic { l == NOBODY -> l = me }
#define UNLOCK(l) l = NOBODY

/* A plain store to one's own flag. A full buffer has to drain first. Movers' own flags are only
 * looked at by other movers, who have passed closer_lock: no buffer. */
inline store_inside(value) {
    if
    :: me >= THREADS -> d_step { mine[me] = value; inside[me] = mine[me] }
    :: else ->
        atomic {
            buffered[me] < DEPTH;
            if
            :: buffered[me] == 0 -> first[me] = value
            :: else -> second[me] = value
            fi;
            buffered[me]++;
            mine[me] = value
        }
    fi
}

/* The oldest store reaches memory. */
inline drain(who) {
    inside[who] = first[who];
    first[who] = second[who];
    second[who] = 0;
    buffered[who]--
}

/* Everything in the buffer of @who reaches memory: a fence, an atomic operation, a system call. */
inline flush(who) {
    d_step {
        if
        :: who < THREADS && buffered[who] == 2 -> drain(who); drain(who)
        :: who < THREADS && buffered[who] == 1 -> drain(who)
        :: else
        fi;
        skip
    }
}

inline wake_left() {
    d_step {
        someone_left = (someone_left + 1) % 16;
        i_ = 0;
        do :: i_ < ALL -> sleeps_left[i_] = false; i_++ :: else -> break od;
        i_ = 0
    }
}

inline wake_closed() {
    d_step {
        i_ = 0;
        do :: i_ < ALL -> sleeps_closed[i_] = false; i_++ :: else -> break od;
        i_ = 0
    }
}

/* ---- gate_enter, gate_leave and their slow ways ---- */

inline thread_known() {
    LOCK(list_lock);
    listed[me] = true;
    UNLOCK(list_lock)
}

/* gate_leave_slow: an atomic add and a system call. */
inline leave_slow() {
    flush(me);
#ifndef BREAK_LEAVE_WAKES
    wake_left()
#else
    skip
#endif
}

inline step_out() {
    store_inside(0);
    flush(me);
    wake_left()
}

inline enter_slow() {
    if
    :: !listed[me] -> thread_known()
    :: else
    fi;
    if
#ifndef BREAK_CLOSER_PASSES
    :: owner_flag[me] -> store_inside(mine[me] + 1); flush(me)
#endif
    :: else ->
        do
        :: true ->
            store_inside(1);
            flush(me); /* a sequentially consistent store */
#ifdef BREAK_CHECKED_AGAIN
            break;
#endif
            if
            :: !gate_closed -> break
            :: else
            fi;
#ifndef BREAK_STEPS_OUT
            step_out();
#endif
            do
            :: gate_closed ->
                /* FUTEX_WAIT: compared and asleep in one step, or not at all. */
                if
                :: atomic { gate_closed -> sleeps_closed[me] = true }; !sleeps_closed[me]
                :: !gate_closed
                fi
            :: !gate_closed -> break
            od
        od
    fi
}

inline enter() {
    before = mine[me];
    if
    :: !listed[me] -> enter_slow()
    :: else ->
        store_inside(before + 1);
        if
#ifdef BREAK_NESTED
        :: gate_closed && !owner_flag[me] -> enter_slow()
#else
        :: gate_closed && before == 0 -> enter_slow()
#endif
        :: else
        fi
    fi
}

inline leave() {
    store_inside(mine[me] - 1);
    if
    :: gate_closed -> leave_slow()
    :: else
    fi
}

/* ---- gate_close and gate_open ---- */

inline barrier_everywhere() {
#ifndef BREAK_MEMBARRIER
    /* One processor after the other, not all at once. */
    t = 0;
    do
    :: t < THREADS -> flush(t); t++
    :: else -> break
    od;
#endif
    t = 0
}

/* Loads of one flag after the other, with the list locked. */
inline look() {
    LOCK(list_lock);
    t = 0;
    found = false;
    do
    :: t < ALL && !found ->
        found = listed[t] && t != me && inside[t] != 0;
        t++
    :: else -> break
    od;
    t = 0;
    UNLOCK(list_lock)
}

inline open_for_all() {
    gate_closed = false;
#ifndef BREAK_OPEN_WAKES
    wake_closed();
#endif
#ifndef BREAK_ONE_CLOSER
    UNLOCK(closer_lock)
#else
    skip
#endif
}

/* Result in got. @impatient: there is a deadline, which passes when it likes. */
inline close(impatient) {
    if
    :: !listed[me] -> thread_known()
    :: else
    fi;
    got = 2;
#ifndef BREAK_ONE_CLOSER
    if
    :: LOCK(closer_lock)
    :: impatient -> got = 0
    fi;
#endif
    if
    :: got == 2 ->
        gate_closed = true; /* sequentially consistent: not buffered */
        barrier_everywhere()
    :: else
    fi;
    do
    :: got == 2 ->
#ifndef BREAK_SEEN_FIRST
        seen = someone_left;
        look();
#else
        look();
        seen = someone_left;
#endif
        if
        :: !found ->
#ifndef BREAK_CLOSER_PASSES
            store_inside(mine[me] + 1);
#endif
            owner_flag[me] = true;
            got = 1
        :: found ->
            if
            :: impatient ->
#ifndef BREAK_EXPIRY_OPENS
                open_for_all();
#else
                UNLOCK(closer_lock);
#endif
                got = 0
            :: true ->
                if
                :: atomic { someone_left == seen -> sleeps_left[me] = true };
                   if
                   :: !sleeps_left[me]
                   :: impatient -> sleeps_left[me] = false
                   fi
                :: someone_left != seen
                fi
            fi
        fi
    :: else -> break
    od
}

inline open() {
    owner_flag[me] = false;
#ifndef BREAK_CLOSER_PASSES
    store_inside(mine[me] - 1);
#endif
    flush(me); /* before a system call */
    open_for_all()
}

/* ---- who does it ---- */

inline begin_use() {
    atomic {
        uses[me] = true;
        assert(owner == NOBODY || owner == me) /* G1 */
    }
}

proctype Program(byte me) {
    byte i_, before, round;
    do
    :: round < ROUNDS ->
        enter();
        begin_use();
        if
        :: true -> /* the driver calls back into an entry point */
            enter();
            leave()
        :: true
        fi;
        uses[me] = false;
        leave();
        round++;
        if
        :: true -> /* the thread ends, and another one begins */
            flush(me);
            LOCK(list_lock);
            listed[me] = false;
            UNLOCK(list_lock)
        :: true
        fi
    :: else -> break
    od
}

proctype Mover(byte me; bool impatient) {
    byte i_, before, t, seen, got, round;
    bool found;
    do
    :: round < ROUNDS ->
        close(impatient);
        if
        :: got == 1 ->
            atomic {
                assert(owner == NOBODY);
                owner = me;
                t = 0;
                do
                :: t < ALL -> assert(!uses[t]); t++ /* G1 */
                :: else -> break
                od;
                t = 0
            }
            /* What it destroys enters as anybody's does. */
            enter();
            begin_use();
            uses[me] = false;
            leave();
            owner = NOBODY;
            open()
        :: else
        fi;
        assert(mine[me] == 0);
        round++
    :: else -> break
    od
}

/* Buffers drain by themselves, sooner or later. */
active proctype Processors() {
end:
    do
    :: d_step { buffered[0] > 0 -> drain(0) }
#if THREADS > 1
    :: d_step { buffered[1] > 0 -> drain(1) }
#endif
#if THREADS > 2
    :: d_step { buffered[2] > 0 -> drain(2) }
#endif
    od
}

init {
    byte n;
    atomic {
        do
        :: n < THREADS ->
            /* It used OpenCL before, or did not. */
            if
            :: listed[n] = true
            :: true
            fi;
            run Program(n);
            n++
        :: n >= THREADS && n < ALL -> run Mover(n, n > THREADS); n++
        :: else -> break
        od
    }
}
