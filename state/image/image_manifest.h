#ifndef RESEAT_STATE_IMAGE_IMAGE_MANIFEST_H
#define RESEAT_STATE_IMAGE_IMAGE_MANIFEST_H

#include "state/image/image_record.h"

/*
 * The file that makes a folder an image: a header, and the records one after the other. A digest in
 * the header is over everything else in it. Pure.
 */

/** Limit of an image's manifest: contents of 15 TiB, or two million objects. */
#define IMAGE_MANIFEST_MAX ((size_t)256 << 20)
/** Bytes read to recognise a manifest. */
#define IMAGE_MANIFEST_HEADER 56

/** Records in the order of the file. */
struct image_manifest {
    struct image_record *records;
    size_t count;
};

/** Add a zeroed record; NULL without memory. */
struct image_record *image_manifest_add(struct image_manifest *manifest,
                                        enum image_record_kind kind);
/** The record IMAGE_ABOUT; NULL only before it was added. */
const struct image_about *image_manifest_about(const struct image_manifest *manifest);
/** The first record of a kind, or NULL. */
const struct image_record *image_manifest_find(const struct image_manifest *manifest,
                                               enum image_record_kind kind);
/** The contents of an object, or NULL. */
const struct image_contents *image_manifest_contents(const struct image_manifest *manifest,
                                                     uint64_t id);
void image_manifest_finish(struct image_manifest *manifest);

/** @ret_bytes: to be freed. Returns 0, -EFBIG or -ENOMEM. */
MUST_CHECK int image_manifest_encode(const struct image_manifest *manifest, char **ret_bytes,
                                     size_t *ret_size);
/**
 * Read what image_manifest_encode() wrote; nothing in @bytes is trusted.
 *
 * @ret_problem  What is wrong and at which byte, on failure.
 * Returns 0, -EBADMSG or -ENOMEM.
 */
MUST_CHECK int image_manifest_decode(const void *bytes, size_t size,
                                     struct image_manifest *ret_manifest,
                                     char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
