#ifndef RESEAT_H
#define RESEAT_H

/*
 * For programs that can adapt to the device they have.
 *
 * A program that runs under reseat(1) is moved between devices whether it knows or not. One that
 * registers here takes part: before a move it saves its progress and lets go of what it can make
 * again, so that less is copied and a smaller device will do; after it, it chooses again (a tile, a
 * batch, a kernel) for the device it has by then.
 *
 * Nothing needs to be linked or installed at run time: every function below looks for the library
 * that `reseat run` brings in, and answers RESEAT_NOT_UNDER where there is none. C11 and C++17.
 *
 * Any thread may call any function, before the first use of OpenCL too. None blocks on the agent
 * or on a move. Functions return RESEAT_OK or one of the errors below, and touch their outputs on
 * success alone.
 *
 * WHERE CALLBACKS RUN. All of them on one thread of the library's own, one at a time, outside every
 * lock of the library; signals are blocked on it. The program's other threads run on meanwhile, so
 * a callback that wants them to stand still has to see to that itself.
 *
 * THE ORDER. One reconfiguration of one virtual device:
 *
 *     checkpoint -> clean_up -> (it is moved) -> configure -> resume
 *
 * `configure` never comes but after `clean_up`, and may come more than once before a `resume` that
 * succeeds: each time it begins anew from the checkpoint. A program that is suspended gets the
 * first two; the last two follow when it has a device again. A program that had to be moved unasked
 * (its device was being taken and it was late, or a thread of it waited for the move) gets all four
 * afterwards, on the device that it has by then (RESEAT_MOVED).
 *
 * CANCEL. When a reconfiguration that began does not happen (a callback failed or took too long,
 * the operator changed their mind, the device had no room), the program goes on where it was, and
 * is told so: `cancel`, then for each callback that had begun the one that undoes it, with the
 * device that it still has: `configure` if `clean_up` had begun, `resume` in any case. If nothing
 * had begun, nothing is called. When `configure` or `resume` fail after a move, the program is
 * moved back, and the same three follow; where it cannot go back it stays, and `resume` follows.
 * A `resume` that is late may have gone on, so that a program that is back gets all four again.
 * So a `configure` that fails had better release what it made. What is called in the wake of a
 * cancel cannot fail: what it returns is not looked at.
 *
 * DEADLINES. A callback has the time that the program stated; `cancel` has that of `resume`. One
 * that is not back by then has failed; when it returns, its result is not looked at, and what is
 * due by then (see above) is called. Until then other reconfigurations are refused with that
 * reason. But a device that is being taken away is left in any case: then what fails or hangs is
 * not waited for, and the program is moved as one that knows nothing would be.
 *
 * OPENCL IN CALLBACKS. Every call is allowed in every callback, on the device that the program has
 * then: the old one in `checkpoint` and `clean_up`, the new one in `configure` and `resume`. Two
 * things wait: a call that needs a device while the program is suspended waits until it has one,
 * and a callback that waits for another thread of the program waits as long as that thread is in a
 * call that waits (for memory, say). The deadline ends both: the reconfiguration is then canceled.
 *
 * WHAT CLGETDEVICEINFO SAYS. To a registered program CL_DEVICE_GLOBAL_MEM_SIZE,
 * CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_LOCAL_MEM_SIZE,
 * CL_DEVICE_MAX_WORK_GROUP_SIZE and CL_DEVICE_MAX_WORK_ITEM_SIZES tell of the device that it has:
 * from registration on, and from each `configure` on (it sees the new ones, and a `cancel` that
 * leads to it does). Launches and
 * allocations are checked against the same. All other answers never change. After unregistering
 * they are again what they were before. What a kernel object says of itself
 * (CL_KERNEL_WORK_GROUP_SIZE...) holds for the device where the kernel was made: make it again in
 * `configure`.
 *
 * IMAGES. `reseat checkpoint` writes a program to disk while it runs. One that has a `save`
 * callback tells its progress with it, and a new process goes on from there (`reseat run
 * --restore`): it asks for the progress with reseat_restored(), makes its objects, and has their
 * bytes filled in as it names them with reseat_name(). A program of this kind calls reseat_name()
 * in either case, once for each object that it goes on with.
 *
 * Progress and bytes are of one moment, which comes while the program is in reseat_save(): every
 * command given before has ended by then, none that is given later has begun, and there is no image
 * where one still waits for an event of the program's. So who calls it has to keep the program's
 * other threads from giving commands, and from changing the progress, from before it looks at that
 * until reseat_save() returns: with the lock under which they do both. The program stands still for
 * as long; its bytes were copied ahead. What is mapped for writing then is in the image as it was
 * before the map, or half written: unmap it before.
 *
 * FORK. The child is not registered; it may register itself. It was not restored either.
 */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What this header speaks. A library of the same major number serves it, older or newer. */
#define RESEAT_API_MAJOR   1u
#define RESEAT_API_MINOR   2u
#define RESEAT_API_VERSION ((uint32_t)(RESEAT_API_MAJOR << 16 | RESEAT_API_MINOR))

enum {
    RESEAT_OK = 0,
    RESEAT_NOT_UNDER = -1,   /**< The program does not run under reseat. */
    RESEAT_UNSUPPORTED = -2, /**< The library that runs is of another major version, or too old. */
    RESEAT_INVALID = -3,     /**< An argument is wrong. */
    RESEAT_NO_MEMORY = -4,   /**< Or no thread. */
    RESEAT_ALREADY = -5,     /**< The program is registered. */
    RESEAT_UNREGISTERED = -6,
    RESEAT_NO_AGENT = -7,   /**< Nobody heard it yet. It is told when an agent is there. */
    RESEAT_BUSY = -8,       /**< A callback has not returned. */
    RESEAT_NO_DEVICE = -9,  /**< There is no such virtual device, or none to run on. */
    RESEAT_NOT_ASKED = -10, /**< No `save` is under way. */
    RESEAT_NOT_MADE = -11,  /**< There is no image: the operator is told why. */
    RESEAT_TOO_LARGE = -12, /**< More than RESEAT_PROGRESS_MAX bytes. */
    RESEAT_NO_IMAGE = -13,  /**< The program was started from its beginning. */
    RESEAT_DAMAGED = -14,   /**< The image, or some of it, cannot be read. */
    RESEAT_DIFFERENT = -15, /**< What is in the image is of another program, size or kind. */
    RESEAT_MISSING = -16,   /**< The image has nothing of that name. */
    RESEAT_TOO_MANY = -17,  /**< Of its kind. */
};

/** struct reseat_limits.features. */
enum {
    RESEAT_FP64 = 1 << 0,
    RESEAT_FP16 = 1 << 1,
    RESEAT_IMAGES = 1 << 2,
    RESEAT_INT64_ATOMICS = 1 << 3,
    RESEAT_SUBGROUPS = 1 << 4,
    RESEAT_IL = 1 << 5, /**< Programs in an intermediate language. */
};

/** struct reseat_device.kind. */
enum { RESEAT_GPU = 1, RESEAT_CPU = 2, RESEAT_ACCELERATOR = 3, RESEAT_OTHER = 4 };

/** struct reseat_change.reason. */
enum {
    RESEAT_MOVE = 1,  /**< To another device, or to none. */
    RESEAT_TAKEN = 2, /**< The same, because this one is being taken away: it cannot be avoided. */
    RESEAT_CANCELED = 3, /**< It stays, or is back, where it was. */
    RESEAT_MOVED = 4,    /**< It was moved unasked: `to` is where it is, in all four callbacks. */
    RESEAT_IMAGE = 5,    /**< An image is made of it, in `save`: `to` is where it is and stays. */
};

/** struct reseat_notice.what. */
enum {
    /** The machine has another device, or one takes programs again or has more for them than it
       had: `text`. `value`: the bytes that programs may have there, or 0. */
    RESEAT_DEVICE_ADDED = 1,
    /** The program's device will be taken in `in_ns`; UINT64_MAX: not any more. It is moved then,
       or as soon as it calls reseat_wish(), be it with nothing new: now is a good time. */
    RESEAT_DEVICE_TAKEN = 2,
    /** The power that its device may draw changed: `value`, in mW; UINT64_MAX: no cap. */
    RESEAT_POWER = 3,
    /** What the program may have of its device changed: `value`, in bytes; UINT64_MAX: no limit. */
    RESEAT_QUOTA = 4,
};

/** What a device has, or what a program asks of one; 0 and no bit: nothing is asked. */
struct reseat_limits {
    uint64_t memory;          /**< Bytes of device memory, all objects together. */
    uint64_t allocation;      /**< Bytes in one memory object. */
    uint64_t local_memory;    /**< Bytes of a work-group. */
    uint64_t work_group_size; /**< Work-items. */
    uint32_t compute_units;
    uint32_t features;    /**< RESEAT_FP64... */
    uint64_t reserved[4]; /**< 0. */
};

/** A real device, as a program sees it. Zero and "" while it has none. */
struct reseat_device {
    uint32_t size;  /**< sizeof(struct reseat_device), by whoever provides the storage. */
    uint32_t kind;  /**< RESEAT_GPU...; 0: none, the program is suspended. */
    char name[128]; /**< The driver's. */
    struct reseat_limits limits;
    /** Bytes of its memory that the program was granted so far; it asks for more by allocating.
     *  UINT64_MAX: nobody limits it, or it is not there yet. */
    uint64_t granted;
};

struct _cl_device_id; /* what a cl_device_id points to */
struct _cl_kernel;    /* and a cl_kernel */
struct _cl_mem;       /* and a cl_mem */

/** What a callback is called for. Borrowed for the call, with all that it points to. */
struct reseat_change {
    uint32_t size;
    uint32_t reason;                  /**< RESEAT_MOVE... */
    struct _cl_device_id *device;     /**< The virtual device: the program's own handle. */
    uint64_t deadline_ns;             /**< CLOCK_MONOTONIC: when the callback has to be back. */
    const struct reseat_device *from; /**< Where it is, or was. */
    /** Where it goes; in `configure` and `resume`, where it is. Of kind 0: nowhere, for now. */
    const struct reseat_device *to;
};

/** Something to know; nothing is to be done about it. Borrowed for the call. */
struct reseat_notice {
    uint32_t size;
    uint32_t what;                /**< RESEAT_DEVICE_ADDED... */
    struct _cl_device_id *device; /**< The virtual device concerned, or NULL. */
    uint64_t in_ns;               /**< From now. */
    uint64_t value;
    const char *text; /**< One line; never NULL. */
};

/**
 * A program that takes part. Zero it, and set `size` to sizeof(struct reseat_program).
 *
 * Callbacks may be NULL: then that step has nothing to do. Those that return int return 0, or
 * another number to say that they failed; the operator sees which one did, and the number.
 */
struct reseat_program {
    uint32_t size;
    /** Milliseconds that each may take; 0: 5000. At most 600000. */
    uint32_t checkpoint_ms, clean_up_ms, configure_ms, resume_ms;
    uint32_t reserved;
    struct reseat_limits minimum; /**< Where it cannot have this, it is not moved to; and it is
                                       moved off once another device has that and room. */
    /** What it could make use of: where its device has less of it, the policy looks for a free one
        that has more. */
    struct reseat_limits preferred;
    /** R.1: save the progress, so that it could be gone on with from there. */
    int (*checkpoint)(void *data, const struct reseat_change *change);
    /** R.2: release what is made again in `configure`. What is left is moved as it is. */
    int (*clean_up)(void *data, const struct reseat_change *change);
    /** R.3: choose and make, for `change->to`, from what `checkpoint` saved. */
    int (*configure)(void *data, const struct reseat_change *change);
    /** R.4: go on. */
    int (*resume)(void *data, const struct reseat_change *change);
    /** What had begun will not happen. */
    void (*cancel)(void *data, const struct reseat_change *change);
    void (*notify)(void *data, const struct reseat_notice *notice);
    void *data; /**< Theirs. To live until reseat_unregister returned RESEAT_OK. */

    /* Since version 1.1; a program whose `size` ends before it has none. */

    uint32_t save_ms; /**< As those above: until reseat_save() is called. */
    uint32_t reserved_too;
    /** An image is made: call reseat_save(), here or on a thread that this waits for. What it
        returns without having done so is the reason why there is no image; after it, nothing. */
    int (*save)(void *data, const struct reseat_change *change);
};

/** Bytes that progress may have; what is larger belongs in a memory object. */
#define RESEAT_PROGRESS_MAX ((size_t)16 << 20)
/** Of a memory object's name: UTF-8 without control characters, with the NUL. */
#define RESEAT_NAME_MAX 256

/** What a program has been given back. */
struct reseat_restored {
    uint32_t size;     /**< sizeof(struct reseat_restored), by whoever provides the storage. */
    uint32_t reserved; /**< 0. */
    const void *bytes; /**< What reseat_save() was given; the library's, for the process's life. */
    size_t count;
    uint64_t saved_ms; /**< When: milliseconds since 1970. */
    char problem[256]; /**< One line: what is wrong, on RESEAT_DAMAGED and RESEAT_DIFFERENT. */
};

/** How the launches of one kernel are done by another one. */
struct reseat_implementation {
    uint32_t size; /**< sizeof(struct reseat_implementation). */
    uint32_t dims; /**< Of the launches. */
    /** In each of these dimensions: work-items of the kernel whose work one work-group of the other
        does. Launches that they do not divide, or that have an offset, run the kernel itself. */
    size_t replaces[3];
    size_t local[3]; /**< Work-items of that work-group. */
};

/** The library's side. Later minor versions add to its end. */
struct reseat_api {
    uint32_t size;
    uint32_t version;
    int (*add)(const struct reseat_program *program);
    int (*remove)(void);
    int (*wish)(const struct reseat_limits *minimum, const struct reseat_limits *preferred);
    int (*current)(struct _cl_device_id *device, struct reseat_device *ret_device);
    /* Since version 1.1. */
    int (*save)(const void *bytes, size_t count);
    int (*restored)(struct reseat_restored *ret_restored);
    int (*name)(struct _cl_mem *memory, const char *name, int *ret_filled);
    /* Since version 1.2. */
    int (*offer)(struct _cl_kernel *kernel, struct _cl_kernel *other,
                 const struct reseat_implementation *implementation);
};

/** The library's one symbol: NULL where it does not speak @version's major number. */
typedef const struct reseat_api *(*reseat_api_fn)(uint32_t version);

/** The library's table, if it goes beyond @offset, or NULL: for the functions below. */
static inline const struct reseat_api *reseat_find(size_t offset, int *ret_error)
{
    reseat_api_fn find = NULL;
    const struct reseat_api *api = NULL;
    /* RTLD_DEFAULT, by whatever name; then a library that came in by the loader's road alone. */
    void *symbol = dlsym((void *)0, "reseat_api");
#ifdef RTLD_NOLOAD
    void *library = symbol ? NULL : dlopen("libreseat.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        symbol = dlsym(library, "reseat_api");
#endif
    *ret_error = symbol ? RESEAT_UNSUPPORTED : RESEAT_NOT_UNDER;
    memcpy(&find, &symbol, sizeof(find));
    if (find)
        api = find(RESEAT_API_VERSION);
#ifdef RTLD_NOLOAD
    if (library)
        dlclose(library); /* it stays: the program's OpenCL is in it */
#endif
    return api && api->size > offset ? api : NULL;
}

/**
 * Take part from now on. One registration a process.
 *
 * @program  Copied. Its minimum is what a move to a device is compared with.
 * RESEAT_INVALID (its size, a deadline, or a minimum over what is preferred), RESEAT_ALREADY,
 * RESEAT_NO_MEMORY.
 */
static inline int reseat_register(const struct reseat_program *program)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, add), &error);
    return api ? api->add(program) : error;
}

/**
 * Take part no more. No callback begins after it returned; one that runs is waited for, as long as
 * its deadline is, unless this is called from it. A reconfiguration under way goes on without.
 *
 * RESEAT_UNREGISTERED, or RESEAT_BUSY: a callback hangs, whose data it still needs; it is
 * unregistered all the same.
 */
static inline int reseat_unregister(void)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, remove), &error);
    return api ? api->remove() : error;
}

/**
 * "I would now like more", or "I need less": what is asked of devices from now on. Never moves the
 * program by itself; who decides hears of it. After a RESEAT_DEVICE_TAKEN it also says that now is
 * a good time to be moved.
 *
 * @minimum, @preferred  Copied; NULL: as before.
 * RESEAT_UNREGISTERED, RESEAT_INVALID, or RESEAT_NO_AGENT (kept, and told when there is one).
 */
static inline int reseat_wish(const struct reseat_limits *minimum,
                              const struct reseat_limits *preferred)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, wish), &error);
    return api ? api->wish(minimum, preferred) : error;
}

/**
 * The device that the program has now, and what it may have of it.
 *
 * @device      One of its virtual devices (a cl_device_id); NULL: the first. No registration is
 *              needed. The first use of OpenCL, if there was none: then it blocks on the driver.
 * @ret_device  Its `size` set by the caller.
 * RESEAT_INVALID, RESEAT_NO_DEVICE.
 */
static inline int reseat_current(struct _cl_device_id *device, struct reseat_device *ret_device)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, current), &error);
    return api ? api->current(device, ret_device) : error;
}

/**
 * Say how far the program is: from `save`, or from a thread that this waits for. See IMAGES above
 * for what other threads may do meanwhile.
 *
 * @bytes  Copied. NULL where @count is 0.
 * Blocks until the moment of the image has come, or there is none: RESEAT_NOT_MADE. What is written
 * then is written while the program runs. RESEAT_NOT_ASKED (also of a `save` that is late),
 * RESEAT_TOO_LARGE, RESEAT_INVALID, RESEAT_NO_MEMORY.
 */
static inline int reseat_save(const void *bytes, size_t count)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, save), &error);
    return api ? api->save(bytes, count) : error;
}

/**
 * How far a former process of the program was, if this one is to go on from there: the image that
 * `reseat run --restore` named. No registration is needed.
 *
 * @ret_restored  Its `size` set by the caller. `problem` is written on failure, too.
 * Blocks on the disk the first time. RESEAT_NO_IMAGE (begin at the beginning), RESEAT_DAMAGED,
 * RESEAT_DIFFERENT (another program's), RESEAT_INVALID. The image is never changed.
 */
static inline int reseat_restored(struct reseat_restored *ret_restored)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, restored), &error);
    return api ? api->restored(ret_restored) : error;
}

/**
 * Name a memory object, to find it again by that name in a new process. In that process, the first
 * object that is called so gets the bytes that the image has.
 *
 * @memory      A buffer or image that has bytes of its own (no sub-buffer, for one). Where its
 * bytes are to come from an image it must not have been used by any command yet.
 * @name        Copied; RESEAT_NAME_MAX. One of a living object's can be given to no other one.
 * @ret_filled  1 when it got the bytes of the image, else 0: there is none, or they were given to
 * an object already. NULL is allowed.
 *
 * Blocks on the disk. On failure the object is as it was and has no new name, but for
 * RESEAT_MISSING: the image has no such object, and it has the name. RESEAT_DIFFERENT (size, type,
 * or format), RESEAT_DAMAGED, RESEAT_BUSY (a command used it), RESEAT_ALREADY (another object's
 * name), RESEAT_INVALID, RESEAT_NO_MEMORY; what exactly is wrong is in the log (RESEAT_LOG).
 */
static inline int reseat_name(struct _cl_mem *memory, const char *name, int *ret_filled)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, name), &error);
    return api ? api->name(memory, name, ret_filled) : error;
}

/**
 * Say that one kernel does the same work as another: launches of @kernel then run whichever was
 * measured to be faster on the device that the program has by then, and with the neighbours that it
 * has there. Each is tried now and then, which takes 1 % of the time at most. Both must write the
 * same bytes. Once @other ran, the program is moved only to devices that have its work-groups.
 *
 * @kernel  What the program launches.
 * @other   Of the same context, which has one device, with parameters of the same kinds in the same
 * order. It is retained while @kernel exists. Before each launch it gets the arguments of @kernel,
 * but for those of
 * __local memory: the program sets these on it, once. It must not have implementations itself.
 * @implementation  Copied.
 *
 * No other thread may launch @kernel meanwhile. With `reseat run --objective`, @kernel alone runs.
 * RESEAT_INVALID, RESEAT_DIFFERENT (the parameters are), RESEAT_TOO_MANY, RESEAT_NO_MEMORY; what
 * exactly is wrong is in the log (RESEAT_LOG).
 */
static inline int reseat_offer(struct _cl_kernel *kernel, struct _cl_kernel *other,
                               const struct reseat_implementation *implementation)
{
    int error;
    const struct reseat_api *api = reseat_find(offsetof(struct reseat_api, offer), &error);
    return api ? api->offer(kernel, other, implementation) : error;
}

/** One of the errors above in words. Static. */
static inline const char *reseat_error_text(int error)
{
    switch (error) {
    case RESEAT_OK:
        return "done";
    case RESEAT_NOT_UNDER:
        return "the program does not run under reseat";
    case RESEAT_UNSUPPORTED:
        return "this reseat speaks another version of reseat.h";
    case RESEAT_INVALID:
        return "an argument is not valid";
    case RESEAT_NO_MEMORY:
        return "no memory or thread";
    case RESEAT_ALREADY:
        return "the program is registered already";
    case RESEAT_UNREGISTERED:
        return "the program is not registered";
    case RESEAT_NO_AGENT:
        return "no agent heard it yet";
    case RESEAT_BUSY:
        return "a callback has not returned";
    case RESEAT_NO_DEVICE:
        return "there is no such device";
    case RESEAT_NOT_ASKED:
        return "no progress was asked for";
    case RESEAT_NOT_MADE:
        return "no image was made";
    case RESEAT_TOO_LARGE:
        return "there are more bytes than an image takes";
    case RESEAT_NO_IMAGE:
        return "the program was not started from an image";
    case RESEAT_DAMAGED:
        return "the image cannot be read";
    case RESEAT_DIFFERENT:
        return "the image has another size or kind of it";
    case RESEAT_MISSING:
        return "the image has nothing of that name";
    case RESEAT_TOO_MANY:
        return "there are too many already";
    default:
        return "unknown error";
    }
}

#ifdef __cplusplus
}
#endif

#endif
