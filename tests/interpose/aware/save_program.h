#ifndef RESEAT_TESTS_INTERPOSE_AWARE_SAVE_PROGRAM_H
#define RESEAT_TESTS_INTERPOSE_AWARE_SAVE_PROGRAM_H

#include "tests/support/cases.h"
#include <pthread.h>

#include "interpose/entry/reseat_api.h"
#include "state/image/checkpoint.h"
#include "state/image/image_read.h"
#include "tests/support/engine_rig.h"
#include "tests/support/folder.h"

/* A program that counts in a buffer, gives the count for an image, and has images made of it. */

#define COUNT ((size_t)3 << 18) /* of numbers: more than one chunk */
#define BYTES (COUNT * sizeof(cl_uint))

struct save_program {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem buffer;
    cl_kernel kernel;
    cl_uint steps; /* that were given; guarded by lock */
    pthread_mutex_t lock;
    char above[SCRATCH_MAX], folder[SCRATCH_MAX + 16];
    struct image_report report;
    int result;      /* what the callback returns */
    int saved;       /* what reseat_save() returned */
    unsigned called; /* the callback */
};
extern struct save_program f;

void open_program(void);
void close_program(void);
void take_part(int (*save)(void *, const struct reseat_change *), uint32_t patience_ms);
/** Gives `steps`. */
int on_save(void *data, const struct reseat_change *change);
void step(void);

/** An image is made; or none, for a reason that has @why in it. */
void makes(void);
void fails(enum move_result result, const char *why);

/** The image that was made last, once it is open. */
extern struct image_folder *folder;
extern struct image_manifest manifest;
extern char problem[IMAGE_PROBLEM_MAX];
void open_image(void);
void close_image(void);

#endif
