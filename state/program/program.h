#ifndef RESEAT_STATE_PROGRAM_PROGRAM_H
#define RESEAT_STATE_PROGRAM_PROGRAM_H

#include "state/object/context.h"

/*
 * Programs stay source. A program is a recipe (source, IL, a portable container of either, or what
 * it was compiled and linked from, with the options) that is followed again in every residence; the
 * vendor's binaries never reach the program.
 */

struct recipe; /* Immutable, reference-counted: recipe.h */

struct program {
    struct object object;
    cl_program real[RESIDENCES_MAX];
    struct context *context;  /**< Held. */
    struct recipe *recipe;    /**< What to do in a new residence. Guarded by lock. */
    _Atomic uint32_t edition; /**< Incremented by each build, compile or link that the program asked
                                   for; tells a mover that what it prepared is out of date. */
    _Atomic uint32_t made[RESIDENCES_MAX]; /**< The edition that real[] is of. */
    _Atomic uint32_t kernels;    /**< Live kernels: a rebuild is refused while there are any. */
    _Atomic uint32_t held;       /**< Held launches of its kernels, which forbid it as well. */
    _Atomic uint32_t executable; /**< Bits: the virtual devices that it has an executable for. */
    pthread_mutex_t lock;
    struct program_details *details; /**< Logs, status, names, memoised answers: program_priv.h */
};

static inline struct program *program_get(cl_program handle)
{
    return object_get(handle, OBJECT_PROGRAM);
}

struct program_outcome; /* program_priv.h */
/**
 * Follow the recipe in @residence, which is at @residence_index: create, build, compile, link as
 * the program did, with the same options; real[] and made[] are set when it returns
 * CL_SUCCESS. Free when made[place] is already the current edition.
 *
 * Blocks on the compiler: call it outside the gate (a mover in PREPARE), or with the gate closed.
 * The caller holds @program and refers to @residence. On failure real[residence_index] is NULL, and
 * the log is written to the log file.
 *
 * @outcome  As recipe_follow()'s.
 */
cl_int program_make_real(struct program *program, struct residence *residence,
                         uint8_t residence_index, struct program_outcome *outcome);

/*
 * What the entry points do once their parameters are checked. @vdevs: bits, which of the
 * context's virtual devices; never empty. All wait while one of them is suspended, and none is
 * called inside the gate.
 */

/** clCreateProgramWithSource, WithIL, WithBinary. Waits only while all of @vdevs are suspended: one
 *  that is gets its part when it is resumed. @base: a reference is taken. */
cl_int program_create(struct context *context, uint32_t vdevs, struct recipe *base,
                      bool from_binary, struct program **ret_program);

/** A program as the parameter of a compilation or a link. */
struct program_list {
    cl_uint count;
    struct program **programs; /**< Borrowed. */
    const char **names;        /**< Of headers; NULL for a link. */
};
/**
 * Who is told that a build ended (5.8.3, 5.8.4). With one, the calls below return as soon as the
 * build could begin, and a thread of ours does it; the callback comes once, from there, outside
 * the gate and every lock, when the program can see the result. Without a thread the call does it
 * and says how it ended, as the specification also allows.
 */
struct program_notify {
    void(CL_CALLBACK *call)(cl_program program, void *data); /**< NULL: nobody; the call blocks. */
    void *data;
};

/*
 * CL_INVALID_OPERATION: an earlier build of the program has not ended, it has kernels, or it was
 * created in a way that leaves nothing to build.
 */

/** clBuildProgram (5.8.3). Blocks on the compilers where @notify names nobody. */
cl_int program_build(struct program *program, uint32_t vdevs, const char *options,
                     struct program_notify notify);
/** clCompileProgram (5.8.4). As program_build. */
cl_int program_compile(struct program *program, uint32_t vdevs, const char *options,
                       const struct program_list *headers, struct program_notify notify);
/**
 * clLinkProgram (5.8.4). As program_build.
 * @ret_program  Set on success, and where the driver has a program to tell of a failure.
 */
cl_int program_link(struct context *context, uint32_t vdevs, const char *options,
                    const struct program_list *inputs, struct program_notify notify,
                    struct program **ret_program);
/**
 * Wait until no build of @program is under way. What needs the result of a build that runs in the
 * background waits for it, so that a program which relies on a compiler that works within the call
 * finds what it would have found. Not inside the gate.
 */
void program_settle(struct program *program);
/** clSetProgramSpecializationConstant (5.8.1). CL_INVALID_PROGRAM: not created from IL. */
cl_int program_specialise(struct program *program, cl_uint id, size_t size, const void *value);

/** True when the last build asked for, for any of @vdevs, made an executable. */
bool program_is_executable(const struct program *program, uint32_t vdevs);
/** Where a kernel can be made first: the place of the first virtual device with an executable that
 * is not suspended, else the context's home. Inside the gate, after program_enter. */
uint8_t program_kernel_place(const struct program *program);
/** context_enter, with one of the virtual devices that have an executable on a device. */
static inline void program_enter(struct program *program)
{
    struct context *context = program->context;
    context_enter(context);
    if (UNLIKELY(context->vdev_count > 1))
        context_enter_slow(context,
                           atomic_load_explicit(&program->executable, memory_order_relaxed));
}

/*
 * What the info calls answer, from memory: a suspended program answers too.
 */

/** As created: SOURCE, IL, or what a container held; NULL for a linked program. Borrowed. */
const struct recipe *program_base(const struct program *program);
/** Bits: which of the context's virtual devices are the program's devices. */
uint32_t program_vdevs(const struct program *program);

struct program_state {
    cl_build_status status;
    cl_program_binary_type type;
    size_t globals; /**< CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE. */
};
void program_vdev_state(struct program *program, cl_uint vdev, struct program_state *ret_state);

/** Programs have no names: that of a kernel of it, or "" where it has none now. */
void program_kernel_name(const struct program *program, char *ret_name, size_t size);

enum program_text { PROGRAM_TEXT_OPTIONS, PROGRAM_TEXT_LOG, PROGRAM_TEXT_KERNELS };
/** Owned by the caller (free()); NULL without memory. @vdev: ignored for the kernels' names. */
char *program_text(struct program *program, cl_uint vdev, enum program_text which);
size_t program_kernel_count(struct program *program);
/**
 * True when clGetKernelArgInfo has answers (5.9.3): the program asked for -cl-kernel-arg-info.
 * Inside, all source is compiled with it, of which the program is not to be told.
 */
bool program_tells_parameters(struct program *program);
/**
 * The container for one virtual device (CL_PROGRAM_BINARIES, 5.8.5).
 *
 * @ret_bytes  Owned by the caller (free()); NULL and size 0 where nothing was built for that
 * virtual device. May be NULL, for the size alone. Returns 0, -ENOMEM or -E2BIG.
 */
MUST_CHECK int program_container(struct program *program, cl_uint vdev, unsigned char **ret_bytes,
                                 size_t *ret_size);
/**
 * The program takes its container with it, or brings it back: what its device made of it is kept in
 * the library of binaries for the next time. Blocks on the driver, as it would where the program
 * got the driver's own binary. Outside the gate.
 */
void program_keep_binary(struct program *program, cl_uint vdev);

/**
 * Can all programs in contexts of @vdev be made on @device? False where it has no compiler and the
 * library of binaries lacks one of them. A mover, in PLAN; blocks on the disk.
 *
 * @ret_kernels  The names of that one's kernels, cut where @size is short; only of meaning then.
 */
bool program_library_serves(const struct vdev *vdev, const struct device *device, char *ret_kernels,
                            size_t size);

/** OpenCL C that drivers get before every source; the program never sees it. Static or "": set
 *  before the first program is made. */
extern const char *program_prologue;

/**
 * What kernels printed so far goes before what they print from now on: a driver may have left it in
 * stdout's buffer where the next one writes past that (6.15.14). By a mover, with the queues
 * drained; waits for nobody, so that it is left there when stdout is locked or its reader is slow.
 */
void program_flush_output(void);

#endif
