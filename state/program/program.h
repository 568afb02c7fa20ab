#ifndef RESEAT_STATE_PROGRAM_PROGRAM_H
#define RESEAT_STATE_PROGRAM_PROGRAM_H

#include "state/object/context.h"

/*
 * A program is kept as its recipe: its source, IL or portable container, or what it was compiled
 * and linked from, with all options. It is built from that again in every residence. The program
 * never sees the vendor's binaries.
 */

struct recipe; /* Immutable, reference-counted: recipe.h */

struct program {
    struct object object;
    cl_program *real; /**< Owned, with made[] behind: one for each of the context's residences. */
    struct context *context;  /**< Held. */
    struct recipe *recipe;    /**< What to do in a new residence. Guarded by lock. */
    _Atomic uint32_t edition; /**< Incremented by each build, compile or link that the program asked
                                   for; tells a mover that what it prepared is out of date. */
    _Atomic uint32_t *made;   /**< The edition of each of real[]. */
    _Atomic uint32_t kernels; /**< Live kernels: a rebuild is refused while there are any. */
    _Atomic uint32_t held;    /**< Held launches of its kernels: these forbid one as well. */
    _Atomic uint32_t executable; /**< Bits: the virtual devices for which it has an executable. */
    pthread_mutex_t lock;
    struct program_details *details; /**< Logs, status, names, memoised answers: program_priv.h */
};

static inline struct program *program_get(cl_program handle)
{
    return object_get(handle, OBJECT_PROGRAM);
}

struct program_outcome; /* program_priv.h */
/**
 * Follow the recipe in @residence, which is at @residence_index: create, build, compile and link as
 * the program did, with the same options. Sets real[] and made[] on CL_SUCCESS. Does nothing when
 * made[residence_index] is the current edition.
 *
 * Blocks on the compiler: call it outside the gate (a mover in PREPARE), or with the gate closed.
 * The caller holds @program and refers to @residence. On failure real[residence_index] is NULL, and
 * the build log is written to the log file.
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

/** clCreateProgramWithSource, WithIL, WithBinary. Waits only while all of @vdevs are suspended: the
 *  real program of a suspended one is made when it is resumed. @base: a reference is taken. */
cl_int program_create(struct context *context, uint32_t vdevs, struct recipe *base,
                      bool from_binary, struct program **ret_program);

/** A program as the parameter of a compilation or a link. */
struct program_list {
    cl_uint count;
    struct program **programs; /**< Borrowed. */
    const char **names;        /**< Of headers; NULL for a link. */
};
/**
 * The program's callback for the end of a build (5.8.3, 5.8.4). With one, the calls below return as
 * soon as the build can begin, and a thread of ours builds; it calls the callback once, outside the
 * gate and without locks, when the program can see the result. If no thread can be started, the
 * call itself builds and returns the result, as the specification also allows.
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
 * Wait until no build of @program is under way. Every call that needs the result of a build in the
 * background waits for it, because programs may rely on a compiler that builds within the call. Not
 * inside the gate.
 */
void program_settle(struct program *program);
/** clSetProgramSpecializationConstant (5.8.1). CL_INVALID_PROGRAM: not created from IL. */
cl_int program_specialise(struct program *program, cl_uint id, size_t size, const void *value);

/** True when the last build asked for, for any of @vdevs, made an executable. */
bool program_is_executable(const struct program *program, uint32_t vdevs);
/** Where to make a kernel first: the residence index of the first virtual device that has an
 * executable and is not suspended, else the context's home. Inside the gate, after program_enter.
 */
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

/** CL_OUT_OF_HOST_MEMORY or CL_OUT_OF_RESOURCES, for -errno of recipes and containers. */
cl_int program_error(int err);

struct program_state {
    cl_build_status status;
    cl_program_binary_type type;
    size_t globals; /**< CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE. */
};
void program_vdev_state(struct program *program, cl_uint vdev, struct program_state *ret_state);

/** The name of one of its kernels, since programs have no names; "": it has no kernels now. */
void program_kernel_name(const struct program *program, char *ret_name, size_t size);

enum program_text { PROGRAM_TEXT_OPTIONS, PROGRAM_TEXT_LOG, PROGRAM_TEXT_KERNELS };
/** Owned by the caller (free()); NULL without memory. @vdev: ignored for the kernels' names. */
char *program_text(struct program *program, cl_uint vdev, enum program_text which);
size_t program_kernel_count(struct program *program);
/**
 * True when clGetKernelArgInfo has answers (5.9.3), because the program gave -cl-kernel-arg-info.
 * We compile all source with that option, which must not show.
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
 * The program asks for its container, or was created from one: add the driver's binary to the
 * library, for its next start. Blocks on the driver, as the native call does. Outside the gate.
 */
void program_keep_binary(struct program *program, cl_uint vdev);

/**
 * True when all programs in contexts of @vdev can be made on @device. False: it has no compiler,
 * and the library of binaries lacks one of them. A mover, in PLAN; blocks on the disk.
 *
 * @ret_kernels  After false: the names of that program's kernels, shortened to @size.
 */
bool program_library_serves(const struct vdev *vdev, const struct device *device, char *ret_kernels,
                            size_t size);

/** OpenCL C that is put before every source given to drivers; the program never sees it. Static or
 *  "". Set before the first program is made. */
extern const char *program_prologue;

/**
 * Flush what kernels have printed (6.15.14): one driver may have left it in stdout's buffer, and
 * the next one may write past that buffer. By a mover, with the queues drained. Never waits: it
 * does nothing when stdout is locked or its reader is slow.
 */
void program_flush_output(void);

#endif
