#ifndef RESEAT_STATE_IMAGE_IMAGE_RECORD_H
#define RESEAT_STATE_IMAGE_IMAGE_RECORD_H

#include <msgpack.h>

#include "state/image/image_chunk.h"

/*
 * The records of an image: everything about a program except its bytes. Each record has a type,
 * which is one row of a table, and the version of that type, so that other releases can read it. To
 * add one: a struct, its fields, and the row.
 *
 * Decoding trusts nothing: every field must exist, have its type, and be within its bounds.
 */

enum image_record_kind {
    IMAGE_ABOUT,   /**< First record, once. */
    IMAGE_CONTEXT, /**< For each object of the program... */
    IMAGE_QUEUE,
    IMAGE_PROGRAM,
    IMAGE_KERNEL,
    IMAGE_ARGUMENT, /**< ...and for each argument of a kernel... */
    IMAGE_SAMPLER,
    IMAGE_MEMORY,
    IMAGE_CONTENTS, /**< ...and for the bytes of each root memory object, or of a file. */
    IMAGE_NAME, /**< A name that the program gave to an object, to find it again in a new process.
                 */
    IMAGE_FILE, /**< A file of a whole process, as CRIU saves it. */
    IMAGE_PROGRESS, /**< At most once, like all below: the progress, as the program saved it... */
    IMAGE_COMMAND,  /**< ...how it was started... */
    IMAGE_LEASE,    /**< ...its lease... */
    IMAGE_SCHEDULE, /**< ...that images of it are made periodically... */
    IMAGE_PROCESS,  /**< ...that the image has the whole process... */
    IMAGE_BASES,    /**< ...and the base chunks that its contents need. */
    IMAGE_RECORD_KINDS,
};

/** The program of the image. */
struct image_about {
    uint64_t created_ms; /**< Since 1970. */
    char *program;       /**< The program's name. */
    uint64_t pid;
    char *host;
    char *release; /**< Version of reseat. */
    char *reason;  /**< Why it was made: a word. */
};

struct image_blob {
    unsigned char *bytes; /**< Owned. */
    size_t size;
};

/* Objects are identified by their handles in the program; what does not exist is 0 or empty. Lists
 * of properties are as the program passed them. */

struct image_context {
    uint64_t id;
    uint64_t vdevs; /**< Bits: the virtual devices of the context. */
    struct image_blob properties;
};

struct image_queue {
    uint64_t id, context;
    uint64_t vdev;
    uint64_t properties; /**< cl_command_queue_properties. */
    struct image_blob list;
};

/** A program, as a recipe in the form of state/recipe/container.h. */
struct image_program {
    uint64_t id, context;
    uint64_t vdevs;          /**< Bits: its devices, by index in the context. */
    struct image_blob base;  /**< As it was created; empty for a linked one. */
    struct image_blob built; /**< As last built for the first of its devices. */
};

struct image_kernel {
    uint64_t id, context, program;
    char *name;
    uint64_t arguments; /**< Number of arguments. */
};

struct image_argument {
    uint64_t kernel, index;
    uint64_t kind;   /**< enum of state/program/kernel.h. */
    uint64_t size;   /**< Size as the program passed it. */
    uint64_t object; /**< The handle, for memory objects and samplers. */
    struct image_blob value;
};

struct image_sampler {
    uint64_t id, context;
    uint64_t normalized, addressing, filter;
    struct image_blob properties;
};

struct image_memory {
    uint64_t id;
    uint64_t context;
    uint64_t root;   /**< The object that has its bytes; itself if it is a root. */
    uint64_t origin; /**< Offset in the root's bytes. */
    uint64_t size;
    uint64_t type;        /**< cl_mem_object_type. */
    uint64_t flags;       /**< cl_mem_flags. */
    uint64_t user_memory; /**< 1: the memory belongs to the program. */
    /* For images, else 0. */
    uint64_t channel_order, channel_type;
    uint64_t width, height, depth, array_size, row_pitch, slice_pitch;
};

/** Objects of up to this many bytes have them in the record itself. */
#define IMAGE_SMALL 512
/** Largest object accepted: no device has so much memory. */
#define IMAGE_SIZE_MAX (UINT64_C(1) << 48)

struct image_contents {
    uint64_t id;
    uint64_t size;
    uint64_t written;          /**< 0: never written, so there are no bytes. */
    struct image_blob small;   /**< All bytes of a small object. */
    struct image_blob digests; /**< Otherwise one IMAGE_DIGEST for each chunk. */
};

/** Longest name that a program may give, without the NUL. */
#define IMAGE_OBJECT_NAME_MAX 255

struct image_name {
    uint64_t id;
    char *name;
};

/** Most bytes of progress; more belongs in a memory object. */
#define IMAGE_PROGRESS_MAX ((size_t)16 << 20)

struct image_progress {
    struct image_blob bytes;
};

/** The command line. Lists are strings, each ended by a NUL. They may contain secrets, and are in
 * no other record. */
#define IMAGE_COMMAND_MAX ((size_t)256 << 10)

struct image_command {
    struct image_blob executable, directory; /**< Paths, without a NUL. */
    struct image_blob arguments, environment;
};

/** 16 small hexadecimal digits, with the NUL. */
#define LEASE_ID_MAX 17

/** As in image_lease.h. */
struct image_lease {
    char *id;
    uint64_t generation;
};

/** The images that the agent makes of the program. */
struct image_schedule {
    uint64_t every_ms;
    uint64_t keep; /**< How many are kept; 0: all. */
};

/** A process saved by CRIU; its OpenCL state is in its memory. */
struct image_process {
    uint64_t box;     /**< Address at which it is reached: agent/protocol/park.h. */
    uint64_t session; /**< 1: it was in another process's session, and is restored into the session
                         of the process that restores it. */
};

struct image_file {
    uint64_t id; /**< Id of its contents. */
    char *name;
};

/** The base chunks of the contents: chunks with a base cannot be read without them. */
struct image_bases {
    struct image_blob digests; /**< One IMAGE_DIGEST each. */
};

struct image_record {
    enum image_record_kind kind;
    /** Owned: the struct of its kind, with its strings and bytes. */
    union {
        void *body;
        struct image_about *about;
        struct image_context *context;
        struct image_queue *queue;
        struct image_program *program;
        struct image_kernel *kernel;
        struct image_argument *argument;
        struct image_sampler *sampler;
        struct image_memory *memory;
        struct image_contents *contents;
        struct image_name *name;
        struct image_progress *progress;
        struct image_command *command;
        struct image_lease *lease;
        struct image_schedule *schedule;
        struct image_process *process;
        struct image_file *file;
        struct image_bases *bases;
    };
};

/** Number of chunks of an object of @size bytes. */
static inline uint64_t image_chunk_count(uint64_t size)
{
    return size / IMAGE_CHUNK + (size % IMAGE_CHUNK != 0);
}
/** Size of its chunk @index. */
static inline size_t image_chunk_size(uint64_t size, uint64_t index)
{
    uint64_t left = size - index * IMAGE_CHUNK;
    return left < IMAGE_CHUNK ? (size_t)left : IMAGE_CHUNK;
}
/** Number of parts of an object; all of its chunks but the last have IMAGE_PARTS. */
static inline uint64_t image_part_total(uint64_t size)
{
    return size / IMAGE_PART + (size % IMAGE_PART != 0);
}
/** The digest of chunk @index. */
struct image_digest image_contents_digest(const struct image_contents *contents, uint64_t index);

/** Name of the kind in the file and for people: "about", "memory". */
const char *image_record_name(enum image_record_kind kind);
/** Make a record that is all zero and empty. Returns 0 or -ENOMEM. */
MUST_CHECK int image_record_init(struct image_record *record, enum image_record_kind kind);
void image_record_finish(struct image_record *record);
/** Write a record as one msgpack object. Strings are made safe. 0 or -ENOMEM. */
MUST_CHECK int image_record_encode(const struct image_record *record, msgpack_sbuffer *buffer);

/** Size of a problem's text, which is one line. */
#define IMAGE_PROBLEM_MAX 1024

/**
 * Read what image_record_encode() wrote.
 *
 * @ret_record  Owned by the caller (image_record_finish).
 * @ret_problem  What is wrong, on failure.
 * Returns 0, -EBADMSG or -ENOMEM.
 */
MUST_CHECK int image_record_decode(const void *bytes, size_t size, struct image_record *ret_record,
                                   char ret_problem[IMAGE_PROBLEM_MAX]);

/** Called for each member of a record; for a number @text is NULL. */
typedef void image_say(void *data, const char *member, uint64_t number, const char *text);
void image_record_describe(const struct image_record *record, image_say *say, void *data);

#endif
