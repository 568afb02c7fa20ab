#ifndef RESEAT_STATE_IMAGE_IMAGE_RECORD_H
#define RESEAT_STATE_IMAGE_IMAGE_RECORD_H

#include <msgpack.h>

#include "state/image/image_chunk.h"

/*
 * What an image says of a program, besides its bytes: records. Each is of a type that is one row of
 * a table, and has that type's version, so that another release knows what it reads. To add one: a
 * struct, its fields, and the row.
 *
 * Decoding trusts nothing: every field has to be there, of its type, and within its bounds.
 */

enum image_record_kind {
    IMAGE_ABOUT,   /**< Once, first. */
    IMAGE_CONTEXT, /**< Each of the objects that a program made, as it made them... */
    IMAGE_QUEUE,
    IMAGE_PROGRAM,
    IMAGE_KERNEL,
    IMAGE_ARGUMENT, /**< ...what it gave to a kernel... */
    IMAGE_SAMPLER,
    IMAGE_MEMORY,
    IMAGE_CONTENTS, /**< ...and the bytes of a memory object that has its own, or of a file. */
    IMAGE_NAME,     /**< What the program calls one, to find it again in a new process. */
    IMAGE_FILE,     /**< Of a whole process, as CRIU keeps it. */
    IMAGE_PROGRESS, /**< From here on each at most once: how far it was, in its own words... */
    IMAGE_COMMAND,  /**< ...how it was started... */
    IMAGE_LEASE,    /**< ...by which right it runs... */
    IMAGE_PROCESS,  /**< ...that all of its process is there... */
    IMAGE_BASES,    /**< ...and which chunks have bytes of those that its contents name. */
    IMAGE_RECORD_KINDS,
};

/** What it is an image of. */
struct image_about {
    uint64_t created_ms; /**< Since 1970. */
    char *program;       /**< Its name. */
    uint64_t pid;
    char *host;
    char *release; /**< Of reseat. */
    char *reason;  /**< Why it was made: a word. */
};

struct image_blob {
    unsigned char *bytes; /**< Owned. */
    size_t size;
};

/* Objects are known by their handles in the program; what is not there is 0 or empty. Lists of
 * properties are as the program gave them, in its numbers. */

struct image_context {
    uint64_t id;
    uint64_t vdevs; /**< Bits: the program's virtual devices that it has. */
    struct image_blob properties;
};

struct image_queue {
    uint64_t id, context;
    uint64_t vdev;
    uint64_t properties; /**< cl_command_queue_properties. */
    struct image_blob list;
};

/** As a recipe; state/recipe/container.h has its form. */
struct image_program {
    uint64_t id, context;
    uint64_t vdevs;          /**< Bits, in the context: its devices. */
    struct image_blob base;  /**< As it was created; empty for a linked one. */
    struct image_blob built; /**< As it was last built for the first of them that it is for. */
};

struct image_kernel {
    uint64_t id, context, program;
    char *name;
    uint64_t arguments; /**< Their number. */
};

struct image_argument {
    uint64_t kernel, index;
    uint64_t kind;   /**< enum of state/program/kernel.h. */
    uint64_t size;   /**< As given. */
    uint64_t object; /**< Of memory objects and samplers. */
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
    uint64_t root;   /**< That of the object that has its bytes; its own, where it has them. */
    uint64_t origin; /**< Where they begin in those. */
    uint64_t size;
    uint64_t type;        /**< cl_mem_object_type. */
    uint64_t flags;       /**< cl_mem_flags. */
    uint64_t user_memory; /**< 1: the memory is the program's. */
    /* Of images, else 0. */
    uint64_t channel_order, channel_type;
    uint64_t width, height, depth, array_size, row_pitch, slice_pitch;
};

/** Of an object whose bytes are in the image. Up to so many of them are in the record itself. */
#define IMAGE_SMALL 512
/** Objects that are larger are none: a device's memory has not so many bytes. */
#define IMAGE_SIZE_MAX (UINT64_C(1) << 48)

struct image_contents {
    uint64_t id;
    uint64_t size;
    uint64_t written;          /**< 0: never, and there are no bytes. */
    struct image_blob small;   /**< All of them, of a small object. */
    struct image_blob digests; /**< Else one IMAGE_DIGEST for each chunk. */
};

/** Of a name that a program gives, without the NUL. */
#define IMAGE_OBJECT_NAME_MAX 255

struct image_name {
    uint64_t id;
    char *name;
};

/** Bytes that a program may say it with: what is larger is better in a memory object. */
#define IMAGE_PROGRESS_MAX ((size_t)16 << 20)

struct image_progress {
    struct image_blob bytes;
};

/** Lists are texts with a NUL behind each. They may have secrets in them, and are in no other
 * record. */
#define IMAGE_COMMAND_MAX ((size_t)256 << 10)

struct image_command {
    struct image_blob executable, directory; /**< Paths, without a NUL. */
    struct image_blob arguments, environment;
};

/** 16 small hexadecimal digits, with the NUL. */
#define LEASE_ID_MAX 17

/** As of image_lease.h. */
struct image_lease {
    char *id;
    uint64_t generation;
};

/** A process as CRIU keeps it; what the program has of OpenCL is in its memory. */
struct image_process {
    uint64_t box;     /**< Where it is spoken to: agent/protocol/park.h. */
    uint64_t session; /**< 1: it was in another process's session, and comes into that of who
                           restores it. */
};

struct image_file {
    uint64_t id; /**< Of its contents. */
    char *name;
};

/** Without them no chunk of the contents that has a base can be read. */
struct image_bases {
    struct image_blob digests; /**< One IMAGE_DIGEST each. */
};

struct image_record {
    enum image_record_kind kind;
    /** Owned: the struct of its kind; texts and bytes in it are owned, too. */
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
/** Bytes of its chunk @index. */
static inline size_t image_chunk_size(uint64_t size, uint64_t index)
{
    uint64_t left = size - index * IMAGE_CHUNK;
    return left < IMAGE_CHUNK ? (size_t)left : IMAGE_CHUNK;
}
/** Number of parts of an object, of which all of its chunks but the last have IMAGE_PARTS. */
static inline uint64_t image_part_total(uint64_t size)
{
    return size / IMAGE_PART + (size % IMAGE_PART != 0);
}
/** The digest of chunk @index. */
struct image_digest image_contents_digest(const struct image_contents *contents, uint64_t index);

/** "about", "memory": what it is called in the file and for people. */
const char *image_record_name(enum image_record_kind kind);
/** A record that is all zero and empty. Returns 0 or -ENOMEM. */
MUST_CHECK int image_record_init(struct image_record *record, enum image_record_kind kind);
void image_record_finish(struct image_record *record);
/** One msgpack object. Texts are made safe. 0 or -ENOMEM. */
MUST_CHECK int image_record_encode(const struct image_record *record, msgpack_sbuffer *buffer);

/** One line. */
#define IMAGE_PROBLEM_MAX 1024

/**
 * Read what image_record_encode() wrote.
 *
 * @ret_record   To be finished.
 * @ret_problem  What is wrong, on failure.
 * Returns 0, -EBADMSG or -ENOMEM.
 */
MUST_CHECK int image_record_decode(const void *bytes, size_t size, struct image_record *ret_record,
                                   char ret_problem[IMAGE_PROBLEM_MAX]);

/** What a record says, member by member; of a number @text is NULL. */
typedef void image_say(void *data, const char *member, uint64_t number, const char *text);
void image_record_describe(const struct image_record *record, image_say *say, void *data);

#endif
