#ifndef RESEAT_STATE_BASE_BYTES_SCHEMA_H
#define RESEAT_STATE_BASE_BYTES_SCHEMA_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Structs in files. A table lists the members of a struct with type and bounds; the struct is
 * written and read by that table. Reading trusts nothing: every member must exist, have its type,
 * and be within its bounds.
 */

enum schema_kind {
    SCHEMA_IS_NUMBER, /**< An unsigned member of 32 or 64 bits. */
    SCHEMA_IS_CHARS,  /**< char member[]. Text, as safe as a terminal needs it (text.h). */
    SCHEMA_IS_TEXT,   /**< char *member, owned; never NULL once it was read. Likewise. */
    SCHEMA_IS_BYTES, /**< A pointer to unstructured elements, owned, and their number. A NUL follows
                        that the number does not count. */
    SCHEMA_IS_LIST,  /**< A pointer to structs of another table, owned, and their number. */
};

struct schema;
struct schema_field {
    const char *key; /**< The member's name in a map. NULL: end of the table. */
    enum schema_kind kind;
    size_t offset, width; /**< Position and size of the member; for BYTES and LIST, width is an
                             element's size. */
    uint64_t most;        /**< The largest number; the longest text; or the most elements. */
    size_t count_offset, count_width;
    const struct schema *of; /**< The elements' table, for LIST. */
};

/* What is between the braces of a row. */
#define SCHEMA_WIDTH(type, member)  sizeof(((const struct type *)0)->member)
#define SCHEMA_MEMBER(type, member) offsetof(struct type, member), SCHEMA_WIDTH(type, member)
#define SCHEMA_NUMBER(type, member, most)                                                          \
#member, SCHEMA_IS_NUMBER, SCHEMA_MEMBER(type, member), most
#define SCHEMA_CHARS(type, member)                                                                 \
#member, SCHEMA_IS_CHARS, SCHEMA_MEMBER(type, member), SCHEMA_WIDTH(type, member) - 1
#define SCHEMA_TEXT(type, member, most) #member, SCHEMA_IS_TEXT, SCHEMA_MEMBER(type, member), most
#define SCHEMA_BYTES(type, member, count, most)                                                    \
#member, SCHEMA_IS_BYTES, offsetof(struct type, member), SCHEMA_WIDTH(type, member[0]), most,  \
        SCHEMA_MEMBER(type, count)
#define SCHEMA_LIST(type, member, count, most, of)                                                 \
#member, SCHEMA_IS_LIST, offsetof(struct type, member), SCHEMA_WIDTH(type, member[0]), most,   \
        SCHEMA_MEMBER(type, count), of

struct schema {
    size_t size; /**< Of the struct. */
    const struct schema_field *fields;
    /** Check a struct whose members are valid one by one: what is wrong, or NULL. May be NULL. */
    const char *(*check)(const void *body);
};

/** Longest TEXT that is written, in bytes. */
#define SCHEMA_TEXT_MAX 1023

/**
 * Write @body as an array of its members in the order of the rows; with @keys as a map. Structs in
 * lists are arrays. Returns 0 or -ENOMEM.
 */
MUST_CHECK int schema_put(msgpack_packer *packer, const struct schema *schema, const void *body,
                          bool keys);

/** Why a struct was rejected. */
struct schema_problem {
    const char *key;  /**< The member; NULL: the struct as a whole. */
    const char *what; /**< Static; NULL: there was no memory. */
};
/**
 * Read what schema_put() wrote.
 *
 * @body  Zeroed. After a failure some members may be set: call schema_finish().
 * Returns 0, -EBADMSG or -ENOMEM.
 */
MUST_CHECK int schema_take(const msgpack_object *object, const struct schema *schema, void *body,
                           bool keys, struct schema_problem *ret_problem);
/** Free what the members own. */
void schema_finish(const struct schema *schema, void *body);

/** The value of a number, or the number of elements of BYTES or a LIST. */
uint64_t schema_number(const struct schema_field *field, const void *body);
/** The string of a TEXT; NULL: it was never set. */
const char *schema_text(const struct schema_field *field, const void *body);

/** True for a string equal to @text. */
bool schema_is_text(const msgpack_object *object, const char *text);
/**
 * Check that @bytes are one msgpack object, not nested too deeply (msgcheck()), and unpack it.
 *
 * @ret_unpacked  Owned by the caller (msgpack_unpacked_destroy), also on failure.
 * Returns 0, -EBADMSG or -ENOMEM.
 */
MUST_CHECK int schema_unpack(const void *bytes, size_t size, unsigned depth,
                             msgpack_unpacked *ret_unpacked);

#endif
