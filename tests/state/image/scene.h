#ifndef RESEAT_TESTS_STATE_IMAGE_SCENE_H
#define RESEAT_TESTS_STATE_IMAGE_SCENE_H

#include "tests/support/cases.h"
#include <limits.h>

#include "tests/scratch.h"
#include "tests/state/image/rig.h"

/* What the suite `image` begins each test with: objects, and a folder that has no image of them
 * yet. */

extern char above[SCRATCH_MAX], images[SCRATCH_MAX + 16];
extern char problem[IMAGE_PROBLEM_MAX];
extern struct rig rig;

/** Chunks of all objects: 3 of noise, 2 of words, one small one of words. */
#define CHUNKS 6

struct image_written write_image(enum image_packing packing);
void expect_good(const char *name);
struct image_swept remove_image(const char *name);
/** The file of the chunk that has the bytes an object has there now. */
void file_of(unsigned number, uint64_t chunk, char ret_file[PATH_MAX]);
size_t size_of(const char *file);

#endif
