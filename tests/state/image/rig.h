#ifndef RESEAT_TESTS_STATE_IMAGE_RIG_H
#define RESEAT_TESTS_STATE_IMAGE_RIG_H

#include "state/image/image_read.h"
#include "state/image/image_write.h"

/*
 * Objects whose bytes are computed from their number, a place and a generation, so that what an
 * image gives back is compared with what is computed again.
 */

enum rig_kind {
    RIG_NOISE,  /**< Nothing makes it smaller. */
    RIG_WORDS,  /**< Something does. */
    RIG_ZERO,   /**< Zeros. */
    RIG_ABSENT, /**< Never written. */
};

struct rig_object {
    enum rig_kind kind;
    uint64_t size;
    uint64_t changed; /**< The chunk of it that is of its own generation; UINT64_MAX: none is. */
    unsigned generation;
    char *bytes;
    uint64_t stamps[4 * IMAGE_PARTS];
};

#define RIG_OBJECTS 6
struct rig {
    struct rig_object objects[RIG_OBJECTS];
    struct image_source sources[RIG_OBJECTS];
    struct image_known known;
    _Atomic unsigned looks;
    uint64_t pid;      /**< Of which process an image says that it is. */
    const char *lease; /**< By which right it runs, or NULL; of which generation. */
    uint64_t generation;
};

/** The objects as they are at first: of one chunk and several, small and empty ones. */
void rig_init(struct rig *rig);
void rig_finish(struct rig *rig);
/** Change the bytes of a chunk of an object. */
void rig_change(struct rig *rig, unsigned object, uint64_t chunk);
/** Those of a part of it alone, to others each time. */
void rig_change_part(struct rig *rig, unsigned object, uint64_t chunk, unsigned part);

/** Write an image of them. As image_write. */
int rig_write(struct rig *rig, const char *path, enum image_packing packing, bool knows,
              struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX]);
/** Read it back: 0, an error, or 1: other bytes than those of @rig came. */
int rig_compare(const struct rig *rig, const char *path, const char *name,
                char ret_problem[IMAGE_PROBLEM_MAX]);
/** Names of the images that are whole. */
struct file_names rig_whole(const char *path);
/** Files in its folder of chunks; and folders of images that are not whole. */
unsigned rig_chunks(const char *path);
unsigned rig_unfinished(const char *path);

#endif
