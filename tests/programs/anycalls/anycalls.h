/** Random calls, right and wrong: what anycalls.c and anycalls_commands.c share. */
#ifndef TESTS_PROGRAMS_ANYCALLS_H
#define TESTS_PROGRAMS_ANYCALLS_H

#include "prog.h"

enum {
    MEMS = 12,
    EVENTS = 8,
    MAPS = 4,
    BYTES = 4096, /**< Of the largest buffer. */
    PIXEL = 16,   /**< Bytes of the largest pixel. */
    WIDTH = 24,   /**< Of images, at most, as the two below. */
    HEIGHT = 9,
    DEPTH = 5,
    IMAGE_BYTES = WIDTH * HEIGHT * DEPTH * PIXEL,
};

/** A memory object. What it is made of is known, so that most arguments are right. */
struct mem {
    cl_mem mem;                /**< NULL: an empty slot. */
    size_t size;               /**< In bytes, as the program counts an image's: without padding. */
    cl_mem_flags flags;        /**< The kernels' access, not where the bytes came from. */
    cl_mem_object_type type;   /**< CL_MEM_OBJECT_BUFFER or an image's. */
    size_t region[3];          /**< Of an image. */
    size_t pixel;              /**< Of an image, in bytes. */
    struct mem *parent;        /**< Of a sub-buffer, and an image over a buffer. */
    unsigned children, mapped; /**< While it has either it stays. */
    void *host;                /**< CL_MEM_USE_HOST_PTR: freed after the object. */
};

struct map {
    struct mem *mem; /**< NULL: an empty slot. */
    void *at;
    size_t size;
};

struct any {
    struct prog prog;
    cl_command_queue queues[2]; /**< In order, and out of order where there is such. */
    cl_program program;
    cl_sampler sampler;
    struct mem mems[MEMS];
    struct map maps[MAPS];
    cl_event events[EVENTS]; /**< NULL: an empty slot. */
    cl_event user;           /**< What commands may be waiting for; NULL: none does. */
    struct rng rng;
    uint64_t sum; /**< Of every answer and every byte that was read. */
    bool verbose, views, layers;
    unsigned long call;
};

/** Account for what @call answered, and for @size bytes at @from. */
void any_note(struct any *a, const char *call, cl_int err, const void *from, size_t size);

/** True for one in @n. */
bool any_one_in(struct any *a, uint32_t n);

/** A random object: of buffers, images or both. NULL when there is none. */
struct mem *any_mem(struct any *a, bool buffers, bool images);

/** Let what waits for the user event go on, so that the program may wait. */
void any_release_user(struct any *a);

/** A place for the event of a command, or NULL for none. What was in it is released. */
cl_event *any_event(struct any *a);

/** One random call of each kind; with @wrong, one argument of it is wrong. */
typedef void any_call(struct any *a, bool wrong);

any_call any_create, any_release_mem, any_query, any_kernel, any_wait; /* anycalls.c */
any_call any_transfer, any_rect, any_copy, any_fill, any_image, any_image_copy, any_map, any_unmap,
    any_copy_rect, any_copy_image, any_map_image; /* anycalls_commands.c */

#endif
