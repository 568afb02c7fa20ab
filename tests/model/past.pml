/*
 * What has ended by a wait (state/command/command.h: queue_step, queue_is_past): threads that give
 * commands to one queue, each with an event, and wait for one of them or for the queue, while
 * another asks for statuses. The driver says nothing by itself. README.md says what is proved, and
 * what each BREAK_... takes away.
 */

#define COMMANDS 2

/* The queue, as the C code has it. */
byte order, past;
byte begun[COMMANDS], given[COMMANDS];
bool issued[COMMANDS]; /* EVENT_ISSUED: the last that is set */

/* The driver's: one lock for its list, as any driver that can be called by two threads has. */
byte list[COMMANDS], listed; /* in the order in which it was given them */
bool ended[COMMANDS];

/* fetch-and-add, and the rise of a maximum. */
inline step(result) {
    d_step { result = order; order++ }
}
inline queue_ended(before) {
    d_step {
        if
        :: past < before -> past = before
        :: else
        fi
    }
}

/* Commands end in order, or, out of order, in any. */
#ifdef OUT_OF_ORDER
#define MAY_END(n) (n < listed && !ended[list[n]])
#else
#define MAY_END(n) (n < listed && !ended[list[n]] && (n == 0 || ended[list[0]]))
#endif

proctype Driver() {
end:
    do
    :: d_step { MAY_END(0) -> ended[list[0]] = true }
    :: d_step { MAY_END(1) -> ended[list[1]] = true }
    od
}

/* command.c: give, wait_outside; event.c: event_issued, event_waited. */
inline give(c) {
#ifndef BREAK_STEPS_FIRST
    step(begun[c]);
#endif
#ifdef BREAK_READ_FIRST
    given[c] = order;
#endif
    atomic { list[listed] = c; listed++ };
#ifdef BREAK_STEPS_FIRST
    step(begun[c]);
#endif
#ifndef BREAK_READ_FIRST
    given[c] = order;
#endif
    issued[c] = true
}

inline await(c) {
    ended[c]; /* in the driver */
    given[c] = 0;
#if !defined(OUT_OF_ORDER) || defined(BREAK_IN_ORDER)
    queue_ended(begun[c])
#else
    skip
#endif
}

proctype Giver(byte c; bool waits) {
    give(c);
    if
    :: waits -> await(c)
    :: else
    fi
}

/* queue.c: queue_finish. */
proctype Finisher() {
    byte before, n, last;
#ifdef BREAK_FINISH_STEPS_FIRST
    last = listed;
    n = 0;
    do :: n < last -> ended[list[n]]; n++ :: else -> break od;
    step(before);
#else
    step(before);
    last = listed; /* all that the driver was given by then */
    n = 0;
    do :: n < last -> ended[list[n]]; n++ :: else -> break od;
#endif
    queue_ended(before)
}

/* event_real_status: of what its driver says nothing. */
proctype Asker() {
    byte c, g;
    do
    :: c < COMMANDS ->
        if
        :: issued[c] ->
            g = given[c];
            if
            :: g <= past -> assert(ended[c])
            :: else
            fi
        :: true
        fi;
        c++
    :: else -> break
    od
}

init {
    byte c;
    atomic {
        order = 0;
        do
        :: c < COMMANDS -> run Giver(c, c != 1); c++
        :: else -> break
        od;
        run Finisher();
        run Driver();
        run Asker()
    }
}
