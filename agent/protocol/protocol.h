#ifndef RESEAT_AGENT_PROTOCOL_PROTOCOL_H
#define RESEAT_AGENT_PROTOCOL_PROTOCOL_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/base/vdevs.h"

/*
 * The wire protocol between programs, the agent and the command line: frames of a 32-bit
 * little-endian length and that many bytes of msgpack, one map with string keys in each. Its
 * "type" says what it is. The first frame in each direction is a hello ("hello", "welcome") that
 * carries the version. Unknown keys are ignored, unknown types are answered with an error.
 *
 * No threads, locale, globals or printing: the library that programs load links this statically.
 */

#define PROTOCOL_VERSION   2
#define PROTOCOL_FRAME_MAX (4u << 20)

/** Maps and arrays inside each other, checked before anything is allocated for a frame. */
#define PROTOCOL_DEPTH_MAX 16

/** Bytes of a type, a code, a name or an id; of one line of text. */
#define PROTOCOL_WORD_MAX 128
#define PROTOCOL_TEXT_MAX 1024

/** Virtual devices of a program, at most. They are counted from 0. */
#define PROTOCOL_VDEVS_MAX VDEVS

/** Devices that the launches of a program are done on beside its own, at most. */
#define PROTOCOL_SPREAD_MAX 8
#define PROTOCOL_PINNED_MAX                                                                        \
    544 /**< Bytes of the names of as many devices as a certificate grants. */

/** Devices that a program is made ready for by one request, at most. */
#define PROTOCOL_PREWARM_MAX 8

/** Records of what launches cost in one message, at most. */
#define PROTOCOL_COSTS_MAX 1000

/** Times of launches in one message, at most. */
#define PROTOCOL_SAMPLES_MAX 64
/** Most "powers" of kernels, on all devices of a program, in a MSG_COSTS to it. */
#define PROTOCOL_POWERS_MAX 512

/* Types of frames: messages.txt has their fields, doc/wire.md their purpose. */
#define MSG_HELLO   "hello"   /**< peer: role "program" or "client", version, who it is. */
#define MSG_WELCOME "welcome" /**< agent: version, and to a program its id and device. */
#define MSG_STATUS  "status"  /**< program: how it is. */
/** program, to an agent whose welcome has "learns": "samples"; to a program whose objective is
   energy: up to PROTOCOL_POWERS_MAX "powers" of its kernels. */
#define MSG_COSTS    "costs"
#define MSG_QUERY    "query"    /**< agent to program: send a status now. */
#define MSG_REGISTER "register" /**< client: this process is about to become a program. */
#define MSG_DEVICES  "devices"  /**< client: list devices; answer. */
#define MSG_APPS     "apps"     /**< client: list programs, or "fields" of them; answer. */
#define MSG_AGENT    "agent"    /**< client: tell about yourself; answer. */
#define MSG_PAGE     "page"     /**< client: the address of your page; answer: "url". */
#define MSG_STOP     "stop"     /**< client: exit; answer. */
#define MSG_RELOAD   "reload"   /**< client: read the configuration again; answer. */
/* client to agent to program, each with a `struct request` (request.h), answered by MSG_REPORT. */
#define MSG_MOVE       "move"
#define MSG_SUSPEND    "suspend"
#define MSG_RESUME     "resume"
#define MSG_PREWARM    "prewarm"    /**< To the program one for each of the client's "devices". */
#define MSG_CHECKPOINT "checkpoint" /**< Write an image while it runs, or park it (park.h). */
#define MSG_PROTECT    "protect"    /**< "not_protected" of the report says why it is not. */
#define MSG_CANCEL     "cancel"
/** client, to program: of the move of "app" change "bandwidth" or "max_downtime_ms"; answer. */
#define MSG_ADJUST "adjust"
/** client: the long launches of "app" are to be done on "devices" too; answer. To the program,
   after its welcome and whenever that changes: those "devices" that it may use now. */
#define MSG_SPREAD   "spread"
#define MSG_PROGRESS "progress" /**< program to agent to client. */
#define MSG_REPORT   "report"   /**< program to agent to client: how a request ended. */
#define MSG_LIMIT    "limit"    /**< client: memory or power of a device or a program; answer. */
/** client: empty a device; MSG_NOTICE where that is only announced ("device", "in_ns", "programs"
   on it, "told"), MSG_STEP for each move, then an answer. */
#define MSG_DRAIN   "drain"
#define MSG_BALANCE "balance" /**< client: the same for moves that make things better. */
#define MSG_STEP    "step"    /**< agent to client. */
/** client: answer when "what" (a device or a program) is in the state "condition". */
#define MSG_WAIT "wait"
/** client: what happened; answers with "events", until one without "more". */
#define MSG_EVENTS  "events"
#define MSG_EXPLAIN "explain" /**< client: why a program is where it is; answer. */
#define MSG_USE     "use"     /**< client: use over time; answer. */
/** client: what launches were found to cost, of "what" alone, without the first "skip"; answer: at
   most PROTOCOL_COSTS_MAX "costs", and "more" where there are more of them. */
#define MSG_PROFILE "profile"
/** client: 1 to PROTOCOL_COSTS_MAX "costs" of another agent's to be merged, all or none; answer:
    how many were "added". */
#define MSG_IMPORT "import"
/** client to agent to program: write down what goes on there. MSG_SPANS come, then an answer: what
   it was "ended_by", how many were "lost". */
#define MSG_TRACE  "trace"
#define MSG_SPANS  "spans"  /**< program to agent to client: "spans"; of the last "end". */
#define MSG_SERVER "server" /**< client: add, remove or list servers; answer. */
#define MSG_ERROR  "error"  /**< agent: code and message. */

/*
 * Device memory. Grants are told as differences, so that one on its way and one given back at the
 * same time add up. "vdev": of several virtual devices on one device, the first.
 */
#define MSG_NEED   "need"   /**< program: a thread of it waits for memory. */
#define MSG_ANSWER "answer" /**< agent: "id", "way" of the need, "reason". */
/** program, while a need waits: are you there? An agent whose welcome has "alive" says it back. */
#define MSG_ALIVE  "alive"
#define MSG_GRANT  "grant"  /**< agent: "vdev", "bytes" more. */
#define MSG_SHRINK "shrink" /**< agent: "vdev", keep to "bytes" in all, and return the rest. */
#define MSG_RETURN "return" /**< program: "vdev", "bytes" that it gives back. */

/**
 * Power. agent: "turn" counts what it says, "capped": a power cap concerns the program (the welcome
 * says so too), "granted": it may launch, for "for_ms" from then on. program: "turn" that it heard
 * of last, "runs": it may launch or launches have not ended, "wants": launches wait for power.
 */
#define MSG_POWER  "power"
#define MSG_WARM   "warm"   /**< agent: keep up to "bytes" of host memory warm (pages.h). */
#define MSG_WISH   "wish"   /**< program: what it asks for, if it registered with reseat.h. */
#define MSG_NOTICE "notice" /**< agent, for a client or by itself. */

/** "what" of MSG_NOTICE: see policy/reseat.h. */
#define NOTICE_ADDED "device-added"
#define NOTICE_TAKEN "device-taken"
#define NOTICE_POWER "power"
#define NOTICE_QUOTA "quota"

/** "way" of MSG_ANSWER. */
#define WAY_AGAIN  "again"  /**< Granted, or moved: try again. */
#define WAY_SPILL  "spill"  /**< Make room among what it has. */
#define WAY_REFUSE "refuse" /**< The error of a full device. */

/** "result" of MSG_REPORT. */
#define RESULT_DONE        "done"
#define RESULT_ROLLED_BACK "rolled-back"
#define RESULT_REFUSED     "refused"
#define RESULT_EXPIRED     "expired"
#define RESULT_CANCELED    "canceled"
#define RESULT_ENDED       "ended"   /**< The program did, and needs no device any more. */
#define RESULT_UNKNOWN     "unknown" /**< Its connection ended first. */
#define RESULT_BEGUN       "begun"   /**< With "detach": the program was asked. */
#define RESULT_QUEUED      "queued"  /**< Of a resume: the policy does it when there is room. */
/** Not tried: the program has more than "wanted" of the request, and more than was granted. Its
 * status, sent before, says how much. */
#define RESULT_AGAIN "again"

/** "track" of a span: its thread, the gate, a queue, launches of a queue that were given in pieces,
 *  or a chunk of a transfer; "of" says which. */
#define TRACK_THREAD "thread"
#define TRACK_GATE   "gate"
#define TRACK_QUEUE  "queue"
#define TRACK_LAUNCH "launch"
#define TRACK_CHUNK  "chunk"

/** Codes of MSG_ERROR; each belongs to one exit status of the command line. */
#define ERR_USAGE     "usage"
#define ERR_NO_APP    "no-app"
#define ERR_NO_DEVICE "no-device"
#define ERR_AMBIGUOUS "ambiguous"
#define ERR_NO_AGENT  "no-agent"
#define ERR_GONE      "gone" /**< The program ended, or stopped answering, under the request. */
#define ERR_REFUSED   "refused"
#define ERR_EXPIRED   "expired"
#define ERR_FAILED    "failed"
#define ERR_PROTOCOL  "protocol"
#define ERR_DENIED    "denied"

/** One received frame. `root` is a map; it and all below it live until message_finish(). */
struct message {
    uint8_t *bytes; /**< Strings in `root` point into it. */
    msgpack_zone *zone;
    msgpack_object root;
};

void message_finish(struct message *message);

/** Turns a stream of bytes, cut anywhere, into frames. */
struct frame_reader {
    uint8_t *bytes;
    size_t start; /**< First byte not yet taken. */
    size_t used;
    size_t size;
};

void frame_reader_init(struct frame_reader *reader);
void frame_reader_finish(struct frame_reader *reader);

/** Append received bytes. Returns 0 or -ENOMEM; the reader is unchanged on failure. */
MUST_CHECK int frame_reader_feed(struct frame_reader *reader, const void *bytes, size_t count);

/**
 * Take the next complete frame.
 *
 * @ret_message  To be given to message_finish(); set only when 1 is returned.
 * Returns 1, 0 (no complete frame yet), -EMSGSIZE (a frame over PROTOCOL_FRAME_MAX: the stream
 * cannot be followed any more), -EPROTO (not one map with string keys within the bounds: that frame
 * is skipped), -ENOMEM.
 */
MUST_CHECK int frame_reader_next(struct frame_reader *reader, struct message *ret_message);

/** Check and decode @size bytes that should be one map. Returns 0, -EPROTO or -ENOMEM. */
MUST_CHECK int message_decode(const uint8_t *bytes, size_t size, struct message *ret_message);

/*
 * Getters. @map may be of any type, and the field of any type or missing: the answer is then the
 * fallback, or false. With equal keys the first counts.
 */
const msgpack_object *field_get(const msgpack_object *map, const char *key);
uint64_t field_u64(const msgpack_object *map, const char *key, uint64_t fallback);
bool field_bool(const msgpack_object *map, const char *key, bool fallback);
/** True when the field is a string without NUL that equals @value. */
bool field_is(const msgpack_object *map, const char *key, const char *value);
/**
 * Copy a string. False, with "" in @ret, when it is missing, not a string, not safe
 * (state/base/bytes/text.h), or longer than @size allows.
 */
bool field_string(const msgpack_object *map, const char *key, char *ret, size_t size);
/** The same of a value by itself, such as an element of an array. */
bool object_string(const msgpack_object *field, char *ret, size_t size);
/** The same of words to be shown: they are made safe, and cut where they are too long. */
bool field_text(const msgpack_object *map, const char *key, char *ret, size_t size);
/** The same of a path, which may hold any byte but NUL: not to be shown. */
bool field_path(const msgpack_object *map, const char *key, char *ret, size_t size);
/** The elements of an array; none when it is missing or no array. Borrowed. */
size_t field_array(const msgpack_object *map, const char *key, const msgpack_object **ret_items);

/** The fields of a map that are asked for: "name", or "vdevs.device" of a map or maps in it. */
#define FRAME_FIELDS_MAX     64
#define FRAME_FIELD_NAME_MAX 48
struct frame_fields {
    char names[FRAME_FIELDS_MAX][FRAME_FIELD_NAME_MAX];
    size_t count;
    uint64_t begins[32]; /**< By the last bits of a first letter: a bit for each of such names. */
};

/** Take the names in a message's array "fields". False: there are too many, or one is none. */
bool frame_fields_take(const msgpack_object *map, struct frame_fields *ret_fields);

/**
 * A frame being written. Failure is remembered: only frame_seal()'s result needs to be checked.
 */
struct frame {
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    struct frame_level {
        size_t header; /**< Where the count is, to be set when the map or array ends. */
        uint32_t count;
        bool map;
        bool some;       /**< Only those of its fields are written that are asked for: */
        size_t from;     /**< where their names begin in those of `fields`, */
        uint64_t wanted; /**< and a bit for each of them. */
    } open[PROTOCOL_DEPTH_MAX], next; /**< `next`: the value whose key was written last. */
    const struct frame_fields *fields;
    unsigned depth, skipped; /**< `skipped`: maps and arrays that are open and not written. */
    int error;
};

/** Begin a frame whose "type" is @type. */
void frame_init(struct frame *frame, const char *type);
void frame_finish(struct frame *frame);

/* A field of the innermost open map, or an element of the innermost array when @key is NULL. */
void frame_u64(struct frame *frame, const char *key, uint64_t value);
void frame_bool(struct frame *frame, const char *key, bool value);
void frame_string(struct frame *frame, const char *key, const char *value);
void frame_map(struct frame *frame, const char *key);
void frame_array(struct frame *frame, const char *key);
/** End the innermost map or array begun with frame_map() or frame_array(). */
void frame_end(struct frame *frame);
/**
 * From here on, write only those fields of the innermost map that are asked for; all, where @fields
 * has none. @fields: borrowed until the map ends.
 */
void frame_only(struct frame *frame, const struct frame_fields *fields);
/** Copy those of a received map's fields that are numbers, truths, or words; words are made safe,
 * as field_text() does. What is missing, or anything else, is left out. */
void frame_forward(struct frame *frame, const msgpack_object *map, const char *const *keys,
                   size_t count);
/** Put a value that is packed already: as that of a message's field, @size bytes of msgpack. */
void frame_packed(struct frame *frame, const char *key, const void *bytes, size_t size);
/** Copy a received value as it is. */
void frame_object(struct frame *frame, const char *key, const msgpack_object *value);

/**
 * End the frame and set its length. The bytes to send are then buffer.data, buffer.size long.
 * Returns 0, -ENOMEM, -EMSGSIZE, or -EINVAL (begun and ended maps do not match).
 */
MUST_CHECK int frame_seal(struct frame *frame);

#endif
