/*
 * Rings of frames and the bells at which their sides wait (remote/rings/bell.c, ring.c, rings.c):
 * writers, each with a ring, and one reader, which takes the frames by their numbers. README.md says
 * what is proved, what is left out, and what each BREAK_... takes away.
 *
 * Each side has a store buffer, of one store: it reaches memory any time later; only the side itself
 * sees it before. Loads read memory, in program order.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef FRAMES
#define FRAMES 3 /* of each writer */
#endif
#define CAPACITY 4
#define SIZE(f)  (1 + (f) % 2) /* of a frame: at most half of the ring */
#define READER   WRITERS
#define SIDES    (WRITERS + 1)

/* Memory. Positions only rise. */
#define HEAD(w)   (w)
#define TAIL(w)   (WRITERS + (w))
#define SLEEPS(s) (2 * WRITERS + (s)) /* a bell: of each writer, and of the reader */
byte memory[3 * WRITERS + 1];
bool used[WRITERS];                   /* the bits in which the reader looks for rings */
byte numbers[WRITERS * CAPACITY];     /* headers, in the rings */
byte next_number;

/* Processors, and the kernel: who sleeps at its bell. */
bool buffered[SIDES];
byte where[SIDES], what[SIDES];
bool asleep[SIDES];

inline drain(s) {
    memory[where[s]] = what[s];
    buffered[s] = false
}

/* A plain store. */
inline store(s, a, v) {
    atomic { !buffered[s] -> buffered[s] = true; where[s] = a; what[s] = v }
}

/* What empties the buffer: a sequentially consistent store, an atomic operation, a system call. */
inline flush(s) {
    d_step {
        if
        :: buffered[s] -> drain(s)
        :: else
        fi
    }
}

proctype Processor(byte s) {
end:
    do
    :: d_step { buffered[s] -> drain(s) }
    od
}

/* ---- bell.c ---- */

/* bell_ring: @me wakes @who. */
inline ring_bell(me, who) {
    if
    :: memory[SLEEPS(who)] != 0 ->
        atomic {
            flush(me);
            woke = memory[SLEEPS(who)];
            memory[SLEEPS(who)] = 0
        };
        if
        :: woke != 0 -> asleep[who] = false
        :: else
        fi
    :: else
    fi
}

/* bell_wait, before it looks again. */
inline says_that_it_sleeps(me) {
    store(me, SLEEPS(me), 1);
#ifndef BREAK_WAITER_ORDER
    flush(me)
#else
    skip
#endif
}

/* The futex. */
inline sleep(me) {
    flush(me);
    atomic {
        if
        :: memory[SLEEPS(me)] == 1 -> asleep[me] = true
        :: else
        fi
    };
    !asleep[me]
}

/* ---- a writer: rings_post ---- */

proctype Writer(byte w) {
    byte f, head, number, at, woke;
#ifndef BREAK_BIT_FIRST
    used[w] = true;
#endif
    do
    :: f < FRAMES ->
        /* ring_begin, ring_await_room */
        do
        :: head + SIZE(f) - memory[TAIL(w)] <= CAPACITY -> break
        :: else ->
            says_that_it_sleeps(w);
#ifndef BREAK_LOOKS_AGAIN
            if
            :: head + SIZE(f) - memory[TAIL(w)] <= CAPACITY -> store(w, SLEEPS(w), 0); break
            :: else
            fi;
#endif
            sleep(w)
        od;
        atomic { flush(w); number = next_number; next_number++ };
        /* ring_publish */
        at = w * CAPACITY + head % CAPACITY;
        head = head + SIZE(f);
#ifndef BREAK_PUBLISHED_LAST
        numbers[at] = number;
#endif
        store(w, HEAD(w), head);
#ifndef BREAK_RINGER_ORDER
        flush(w);
#endif
#ifdef BREAK_PUBLISHED_LAST
        numbers[at] = number;
#endif
        ring_bell(w, READER);
#ifdef BREAK_BIT_FIRST
        used[w] = true;
#endif
        f++
    :: else -> break
    od
}

/* ---- the reader: rings_take ---- */

/* find: which ring has the next frame; WRITERS: none. */
inline find() {
    found = WRITERS;
    r = 0;
    do
    :: r < WRITERS && found == WRITERS ->
        if
        :: used[r] && seen[r] == tail[r] -> seen[r] = memory[HEAD(r)]
        :: else
        fi;
        if
        :: seen[r] != tail[r] ->
            front = numbers[r * CAPACITY + tail[r] % CAPACITY];
            assert(front >= expected);
            if
            :: front == expected -> found = r
            :: else
            fi
        :: else
        fi;
        r++
    :: else -> break
    od;
    r = 0;
    front = 0
}

proctype Reader() {
    byte expected, found, front, r, woke, before;
    byte seen[WRITERS], tail[WRITERS], taken[WRITERS];
    do
    :: expected < WRITERS * FRAMES ->
        do
        :: true ->
            find();
            if
            :: found != WRITERS -> break
            :: else
            fi;
            says_that_it_sleeps(READER);
#ifndef BREAK_LOOKS_AGAIN
            find();
            if
            :: found != WRITERS -> store(READER, SLEEPS(READER), 0); break
            :: else
            fi;
#endif
            sleep(READER)
        od;
        /* ring_take */
        before = seen[found] - tail[found];
        tail[found] = tail[found] + SIZE(taken[found]);
        assert(tail[found] <= seen[found]);
        taken[found]++;
        store(READER, TAIL(found), tail[found]);
#ifndef BREAK_RINGER_ORDER
        flush(READER);
#endif
        if
#ifndef BREAK_HALF_WAKES
        :: seen[found] - tail[found] <= CAPACITY / 2 -> ring_bell(READER, found)
#else
        :: before == CAPACITY -> ring_bell(READER, found)
#endif
        :: else
        fi;
        before = 0;
        expected++
    :: else -> break
    od
}

init {
    byte i;
    atomic {
        do
        :: i < WRITERS -> run Writer(i); run Processor(i); i++
        :: else -> break
        od;
        run Processor(READER);
        run Reader()
    }
}
