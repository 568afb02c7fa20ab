#ifndef RESEAT_TESTS_STATE_COMMAND_TEST_EVENTS_H
#define RESEAT_TESTS_STATE_COMMAND_TEST_EVENTS_H

#include "tests/support/engine_rig.h"

/* What the suites of events, queues and clocks share. */

#define EVENTS_WORDS  64
#define EVENTS_CONFIG "[one] name=one base=1 [two] name=two base=1"

struct events_scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add; /**< Adds 1 to each word of `buffer`. */
    cl_mem buffer;
    cl_uint words[EVENTS_WORDS];
};

/** @config as of engine_rig_open; @properties of the program's queue. The words are 0. */
void events_open(struct events_scene *s, const char *config,
                 cl_command_queue_properties properties);
/** On two virtual devices, the first two of @config, of one context: returns a queue on the second.
 */
cl_command_queue events_open_pair(struct events_scene *s, const char *config,
                                  cl_command_queue_properties properties);
cl_event events_user(struct events_scene *s);
cl_event events_add(struct events_scene *s, cl_command_queue queue, cl_uint waits,
                    const cl_event *wait_list);
cl_int events_status(cl_event event);
/** Read through @queue; all words must be @wanted. */
void events_check_words(struct events_scene *s, cl_command_queue queue, cl_uint wanted);
/** Wait until *@count is @wanted, and a little longer. */
bool events_wait(_Atomic unsigned *count, unsigned wanted);

/** Moves the program to device "three", suspends it and has it back on "one", again and again. */
struct events_mover {
    const struct engine_rig *rig;
    atomic_bool stop; /**< Set: end once it is back. */
};
/** Its thread; @data: a struct events_mover. */
void *events_move_about(void *data);

#endif
