#ifndef RESEAT_TESTS_STATE_COMMAND_SLICES_RIG_H
#define RESEAT_TESTS_STATE_COMMAND_SLICES_RIG_H

#include "tests/support/cases.h"

#include "tests/support/engine_rig.h"

/* Kernels whose launches take long, and what these come to. */

/* Launches that take their time by themselves leave the processors to other tests: so many items a
 * second there are, whatever an item works. Where all of a launch has to be cut, pieces are to take
 * 10 ms: ends are heard of late on a busy machine, by what is small beside that. */
#define PACED      "type=cpu base=1 paced=plain,waits,places,others,agree,counts items_per_s=20480 "
#define UNPACED    "type=cpu base=1 "
#define TWO(speed) "[one] name=one " speed "[two] name=two " speed
#define CONFIG     TWO(PACED)

/** Kernels `plain`, which asks for nothing but global ids and ids within a group, and `waits`,
 * which may wait for another group. They add to out[at] what depends on all that they ask. */
extern const char slices_source[];
/** What an item's work makes of @x; `work` of the source. */
cl_uint slices_work(cl_uint x, cl_uint rounds);

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem out;
    cl_uint *words, *wanted;
    size_t count;
};

/** The engine with slices of @slice_ms, on emulated devices or, @config NULL, on POCL's; `out` of
 *  @count words; no program. */
void scene_begin(struct scene *s, const char *config, const char *slice_ms,
                 cl_command_queue_properties properties, size_t count);
/** Build @source, whose kernel called @name is launched from here on. */
void scene_build(struct scene *s, const char *source, const char *options, const char *name);
/** Both, with slices_source. */
void scene_open(struct scene *s, const char *config, const char *slice_ms, const char *name,
                cl_command_queue_properties properties, size_t count);
void scene_close(struct scene *s);
struct residence *residence_of(const struct scene *s);

/** A launch. @local: 0 leaves it to OpenCL. */
struct shape {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
};
/** One of some 200 ms where launches are PACED, in hundreds of groups. */
extern const struct shape long_shape;
/** Four times as long. */
extern const struct shape longer_shape;
/** Words for a longer_shape, and for the longest launch of outlast. */
#define OUTLAST_WORDS (64 * 4096)
/** What items work where launches are paced, and what makes a long_shape of POCL's last as long. */
#define ROUNDS      100
#define LONG_ROUNDS 200000

/** The arguments of all kernels here; @w, @h: how many words a row and a plane have. */
void set_args(const struct scene *s, cl_uint rounds, cl_uint w, cl_uint h);
cl_event launch(struct scene *s, const struct shape *shape, cl_uint rounds);
/** The same, to its end. Whether it went in pieces. */
bool launch_through(struct scene *s, const struct shape *shape, cl_uint rounds);
/** What a launch of `plain` adds, by the definition of its ids. */
void add_wanted(struct scene *s, const struct shape *shape, cl_uint rounds);
/** `out` has what is wanted. */
void check(struct scene *s);

cl_int status_of(cl_event event);
/** Launches that the emulated device was given so far. */
uint64_t launches(const struct scene *s, const char *device);
bool is_cut(cl_event event);
void await_running(cl_event event);
/** Once a launch runs, @meanwhile is done, which says whether the launch goes on still. Where it
 * does not, on a machine that has other things to do, a launch that takes twice as long is tried;
 * one that is waited for is outlasted by no launch. @times: how long the first one is, in
 * long_shapes. @add: what a launch adds, as add_wanted. The scene has OUTLAST_WORDS. */
void outlast(struct scene *s, unsigned times, bool (*meanwhile)(struct scene *s, cl_event event),
             void (*add)(struct scene *s, const struct shape *shape, cl_uint rounds));

#endif
