#ifndef RESEAT_STATE_MEMORY_MEMORY_H
#define RESEAT_STATE_MEMORY_MEMORY_H

#include "state/base/threads/callback.h"
#include "state/memory/extents.h"
#include "state/object/context.h"
#include "state/opencl/image.h"

/*
 * Memory objects and their replicas (invariants R1 to R4).
 *
 * The bytes belong to the root: a buffer, or an image that has storage of its own. Sub-buffers and
 * images made from a buffer are views of a root. A root has a version that every write increments
 * and replicas, one a residence and one in host memory: the host copy.
 *
 * The host copy is one host address for the object's whole life: maps point into it on every
 * device. It is the program's own memory for CL_MEM_USE_HOST_PTR, ours otherwise. Where a residence
 * keeps CL_MEM_USE_HOST_PTR bytes in place (`in_place`: CPU devices) buffers are made over their
 * host copy, so that maps cost nothing and a move between two such devices copies nothing.
 *
 * Only the program's commands write to the program's own memory (L4): it may be read-only, or freed
 * already when the object is released. It is the replica in host memory as long as it has the
 * latest bytes. When host memory needs bytes that it lacks, these go to the shadow copy, and only
 * commands of the program copy them to its memory. A copy from it must not crash where it was
 * freed; so a driver that copies from it by itself is given it only at the object's creation.
 */

struct write_tracked; /* write_tracked.c */

/**
 * A buffer of one driver over a host copy, which nothing uses: the driver registered the host copy
 * for it, and so copies between the device and the host copy at the link's speed.
 */
struct registered {
    _Atomic uint8_t state;             /**< enum registered_state (registered.c). */
    const cl_icd_dispatch *cl;         /**< Whose buffer it is. */
    const struct residence *residence; /**< Where it was made; to be compared only. */
    cl_mem buffer;
    _Atomic uint64_t mapped; /**< Bytes of all maps of the host copy so far. */
};

/**
 * The host bytes of a memory object. Counted: drivers may still use them after the program released
 * the object.
 */
struct host_copy {
    _Atomic uint32_t refs;
    bool ours; /**< Allocated by us, not the program's CL_MEM_USE_HOST_PTR. */
    char *bytes;
    size_t size;
    struct farewell
        *farewell; /**< Of the program's: told when nobody needs it any more; or NULL. */
    struct write_tracked *_Atomic write_tracked; /**< Owned; or NULL (write_tracked.h). */
    struct registered registered;
    struct lent_memory *lent; /**< Where `bytes` lie if `lender`'s driver lent them; or NULL. */
    const struct device *lender;
    struct callback_job job; /**< To drop references on the callback thread. */
    _Atomic uint32_t drops;  /**< How many; the job is posted while there are any. */
};
static inline struct host_copy *host_copy_ref(struct host_copy *host_copy)
{
    if (host_copy)
        atomic_fetch_add_explicit(&host_copy->refs, 1, memory_order_relaxed);
    return host_copy;
}
void host_copy_unref(struct host_copy *host_copy); /**< NULL is allowed. */

struct mapping;  /* mapping.h */
struct known;    /* compare.c */
struct farewell; /* memory_class.c */

/* The fields that a launch reads of an argument come first, in one or two cache lines. */
struct memory {
    struct object object;
    struct memory *root;      /**< Itself, or the held root that has the bytes. */
    cl_mem_flags flags;       /**< What clGetMemObjectInfo answers. */
    size_t size;              /**< Bytes. */
    _Atomic uint64_t version; /**< Of roots. 0: never written. Rises. */
    _Atomic uint8_t writer;   /**< Of roots: its replica always has the latest version. */
    _Atomic bool used;        /**< Of roots: some command named it, which may be in flight. */
    cl_mem_object_type type;
    _Atomic uint64_t backed; /**< Bit p: real[p] was made over the root's host copy. */
    cl_mem *real; /**< Owned, with held[] behind: one for each of the context's residences.
                     Written by the creator, movers, and under the gate on first use. */
    _Atomic uint64_t *held; /**< Of roots: the version that each replica had when it was made. By
                               memory_held(). */
    _Atomic uint64_t held_in_host; /**< The same of the replica in host memory. */
    struct context *context;       /**< Held. */
    size_t origin;                 /**< Of a sub-buffer, bytes from the root. */
    bool uses_svm;                 /**< CL_MEM_USE_HOST_PTR, and it points into SVM. */
    void *host_ptr;                /**< CL_MEM_USE_HOST_PTR's, or NULL. */
    struct image_shape *image;     /**< Owned; NULL for buffers. */
    cl_mem_properties *properties; /**< Owned, with the final 0; or NULL. */
    size_t property_count;
    struct memory *associated;         /**< CL_MEM_ASSOCIATED_MEMOBJECT, held. */
    struct farewell *_Atomic farewell; /**< Destructor callbacks, or NULL. */
    _Atomic uint32_t map_count;        /**< CL_MEM_MAP_COUNT. */

    /* Of roots only. This, `version` and `writer` are of all bytes until these are told apart. */
    struct extents *extents;     /**< Owned; NULL unless WRITER_APART. Guarded by its lock. */
    _Atomic uint64_t filled;     /**< Bit p: the replica in residence p once had bytes of it. */
    struct known *_Atomic known; /**< Owned; or NULL (compare.h). */
    _Atomic uint32_t maps;       /**< How many mappings there ever were. */
    struct host_copy *_Atomic host_copy; /**< Or NULL. While set, its bytes keep their address. */
    char *_Atomic shadow_copy; /**< Owned. The replica in host memory where that is not the
                              host copy; or NULL. Written by the one thread that copies. */
    struct mapping *mappings;  /**< Of it and its views. Guarded by mapping.c's lock, with: */
    bool visited;              /**< A mover copies it, with the gate open. */
    _Atomic bool collected;    /**< A mover copies it: not to be spilled. Set with the
                                    gate closed. */
    _Atomic uint64_t stamp;    /**< When a command named it, where room is short. */
    /** Bytes of this version that were copied to other residences without a replica there. */
    _Atomic uint64_t passed, passed_version;
};

static inline struct memory *memory_get(cl_mem handle)
{
    return object_get(handle, OBJECT_MEMORY);
}

/** True when its extents differ: extents.c knows them. Otherwise only commands inside the gate make
 *  it so that nothing below is true any more. */
static inline bool replica_is_apart(const struct memory *root)
{
    return atomic_load_explicit(&root->writer, memory_order_acquire) == WRITER_APART;
}

static inline struct range replica_whole(const struct memory *root)
{
    return (struct range){0, root->size};
}

/** The version of the replica at @residence_index (RESIDENCE_HOST too) when it was made. */
static inline _Atomic uint64_t *memory_held(const struct memory *root, uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST ? &((struct memory *)root)->held_in_host
                                             : &root->held[residence_index];
}

/** True when @root was not told apart, and @residence_index (RESIDENCE_HOST too) holds its latest
 * bytes. Wait-free. */
static inline bool replica_is_latest_whole(const struct memory *root, uint8_t residence_index)
{
    uint64_t version = atomic_load_explicit(&root->version, memory_order_relaxed);
    return version == 0 ||
           atomic_load_explicit(&root->writer, memory_order_relaxed) == residence_index ||
           atomic_load_explicit(memory_held(root, residence_index), memory_order_relaxed) ==
               version;
}

/** True when @residence_index (RESIDENCE_HOST too) holds the latest bytes of @range. */
static inline bool replica_has(const struct memory *root, uint8_t residence_index,
                               struct range range)
{
    return replica_is_latest_whole(root, residence_index) ||
           (UNLIKELY(replica_is_apart(root)) && extents_latest(root, residence_index, range));
}

/** True when @residence_index (RESIDENCE_HOST too) holds the latest bytes of all of @root. */
static inline bool replica_is_latest(const struct memory *root, uint8_t residence_index)
{
    return replica_has(root, residence_index, replica_whole(root));
}

/**
 * A command that was just given to @residence_index writes @root, which is not told apart: a new
 * version, held there alone. Inside the gate. Two threads that write the same object at once leave
 * the same writer, and a version that differs from any seen before either came in (movers read it
 * with the gate closed).
 */
static inline void replica_written_whole(struct memory *root, uint8_t residence_index)
{
    atomic_store_explicit(&root->writer, residence_index, memory_order_relaxed);
    atomic_store_explicit(&root->version,
                          atomic_load_explicit(&root->version, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/** The same of @range, the latest bytes of whose extents @residence_index has. */
static inline void replica_written(struct memory *root, uint8_t residence_index, struct range range)
{
    if (LIKELY(!replica_is_apart(root)))
        replica_written_whole(root, residence_index);
    else
        extents_written(root, residence_index, range);
}

/** The three creators. Validate as the specification asks; the driver validates the rest. */
cl_int memory_create_buffer(struct context *context, const cl_mem_properties *properties,
                            cl_mem_flags flags, size_t size, void *host_ptr,
                            struct memory **ret_memory);
/** @alignment  Of the origin, in bytes, as the program was told. */
cl_int memory_create_sub_buffer(struct memory *buffer, cl_mem_flags flags,
                                cl_buffer_create_type type, const void *info, size_t alignment,
                                struct memory **ret_memory);
cl_int memory_create_image(struct context *context, const cl_mem_properties *properties,
                           cl_mem_flags flags, const cl_image_format *format,
                           const cl_image_desc *desc, void *host_ptr, struct memory **ret_memory);

/**
 * Make the real object of @memory in @residence_index, its root's first. Not its content: its
 * replica there is stale afterwards, unless the object was never written. Inside the gate, or by a
 * mover. CL_SUCCESS, the driver's error, or OVER_BUDGET (budget.h).
 */
cl_int memory_make_real(struct memory *memory, struct residence *residence,
                        uint8_t residence_index);

/** True when real[residence_index] was made over the host copy; false of RESIDENCE_HOST. */
static inline bool memory_is_backed(const struct memory *memory, uint8_t residence_index)
{
    return (atomic_load_explicit(&memory->backed, memory_order_acquire) >> residence_index) & 1;
}

/** Forget real[residence_index], which the caller has released or will, and return its bytes to the
 * device's budget. */
static inline void memory_left(struct memory *memory, struct residence *residence,
                               uint8_t residence_index)
{
    if (memory->real[residence_index] && memory->root == memory)
        budget_return(&residence->device->budget, memory->size);
    memory->real[residence_index] = NULL;
    if (memory_is_backed(memory, residence_index))
        atomic_fetch_and_explicit(&memory->backed, ~residence_bit(residence_index),
                                  memory_order_relaxed);
}

/** Bytes of @root whose latest version only the replica at @residence_index has, not counting
 * replicas that are not kept (context_keeps). RESIDENCE_NONE: bytes whose latest version no replica
 * has. */
uint64_t memory_only_at(const struct memory *root, uint8_t residence_index);

/** Record that a command names @root, which so becomes the most recently used. Inside the gate. */
void memory_stamp(struct memory *root);
/** The most recent stamp of all roots. */
uint64_t memory_stamp_latest(void);

/** Allocate the root's host copy if it has none. 0 or -ENOMEM.
 * @flags  PAGES_ANY where every byte of it is written before the program can see one; or 0. */
MUST_CHECK int memory_host_copy(struct memory *root, unsigned flags);
/** The same with bytes that the driver of @lender has lent. False: @root has a host copy, or no
 * memory; then the caller returns them. Inside the gate. */
MUST_CHECK bool memory_host_copy_borrow(struct memory *root, const struct device *lender,
                                        struct lent_memory *lent);
/** True when the host copy of @root is the program's own memory (CL_MEM_USE_HOST_PTR). */
static inline bool memory_is_user_memory(const struct memory *root)
{
    return root->host_ptr && !root->uses_svm;
}
/** Where the replica in host memory is. The host copy, or the shadow copy, exists. */
static inline char *memory_host_bytes(const struct memory *root)
{
    return root->shadow_copy ? root->shadow_copy : root->host_copy->bytes;
}
/** Make sure that there is memory of ours for a replica in host memory: the host copy, or a shadow
 * copy beside the program's own memory. By the thread that copies. 0 or -ENOMEM.
 * @flags  As above. */
MUST_CHECK int memory_host_room(struct memory *root, unsigned flags);
/** Bytes that memory_host_room would allocate for @memory, if it is large and host memory lacks its
 * latest bytes; else 0. Any thread: a moment later it may be wrong. */
uint64_t memory_host_need(const struct memory *memory);
/** The host copy is the replica in host memory again, because a device works in it: free the shadow
 * copy. By the thread that copies. */
void memory_host_is_host_copy(struct memory *root);
/** True when the device at @residence_index works in the host copy, which is its replica. */
static inline bool memory_works_in_host_copy(const struct memory *root, uint8_t residence_index)
{
    return memory_is_backed(root, residence_index) && root->context->at[residence_index]->in_place;
}
/** True when the host copy has the latest bytes, as the replica in host memory or of a device that
 * works in it. */
bool memory_host_copy_is_latest(const struct memory *root);
/** True when real[residence_index] works in the program's memory, and bringing it up to date would
 * write there. */
bool memory_would_write(const struct memory *root, uint8_t residence_index);
/** Give the host copy or the shadow copy back, if it is ours, nobody maps it and no replica lives
 * in it. By movers.
 * @drained  The residence whose commands have all ended. Another one that wrote last may still read
 *           the host copy for that write. */
void memory_host_copy_drop(struct memory *root, uint8_t drained);

/**
 * clSetMemObjectDestructorCallback (5.5.1): @call comes once, last registered first, when the
 * object and every driver's use of its memory have ended; outside the gate. 0 or -ENOMEM.
 */
MUST_CHECK int memory_add_destructor(struct memory *memory, void(CL_CALLBACK *call)(cl_mem, void *),
                                     void *data);
/**
 * clReleaseMemObject. With the last reference the program may free its CL_MEM_USE_HOST_PTR memory:
 * blocks while a mover copies from or to that. False when there was no reference left to drop.
 */
bool memory_release(struct memory *memory);

#endif
