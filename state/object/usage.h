#ifndef RESEAT_STATE_OBJECT_USAGE_H
#define RESEAT_STATE_OBJECT_USAGE_H

#include "policy/plan.h"
#include "state/opencl/launch.h"
#include "state/recipe/recipe.h"

/*
 * What the program has used so far, for PLAN, as high-water marks of the whole process. They only
 * rise; noting is lock-free and costs a few loads where nothing is new. What is not known is not
 * noted: a wrong mark would refuse a move that works, while a missing one is caught when PREPARE
 * builds and allocates on the target.
 */

struct memory;
struct image_shape;

/** What one kernel's parameters need. */
struct usage_kernel {
    uint32_t parameter_bytes;
    uint32_t read_images, write_images, samplers;
    bool fp64, fp16; /**< Parameters of such types. */
};
void usage_note_kernel(const struct usage_kernel *kernel);
/** @local_memory  Static and dynamic bytes. */
void usage_note_launch(const struct launch_space *space, uint64_t local_memory);
/** Note a successful build. Reads its source text: extensions enabled outside of conditionals,
 * -cl-std. */
void usage_note_recipe(const struct recipe *recipe);
/** Pixels of an image, layers of an array. */
void usage_note_image(const struct image_shape *shape);
/** A memory object of @size bytes. */
void usage_note_object(uint64_t size);
/** A sub-buffer that begins @origin bytes into its buffer. */
void usage_note_sub_buffer(uint64_t origin);
/** A kernel was asked about its sub-groups. */
void usage_note_subgroups(void);

/**
 * Read all marks; device_memory is not kept here and is 0. By one mover at a time.
 * @ret  Its list of extensions is valid until the next call, the names forever.
 */
void usage_read(struct plan_use *ret);

/**
 * Start the marks again, for a program that reconfigures itself and released what it used; the
 * caller notes what is alive. usage_restore: the move did not happen, so the marks become at least
 * what they were. By one mover at a time; marks that other threads note meanwhile count.
 */
void usage_renew(void);
void usage_restore(void);

#endif
