#ifndef RESEAT_AGENT_PROTOCOL_MESSAGE_H
#define RESEAT_AGENT_PROTOCOL_MESSAGE_H

#include "agent/protocol/protection.h"
#include "agent/protocol/protocol.h"
#include "state/driver/driver.h"

/* The functions that the generated packing and unpacking calls: see messages.txt. */

#define MESSAGE_BYTES_MAX (UINT64_C(1) << 48)
#define MESSAGE_MS_MAX    (UINT64_C(24) * 3600 * 1000)

/** @text  Made safe, and cut where it is too long; NULL: "". */
void message_put_text(struct frame *frame, const char *key, const char *text);
void message_put_device(struct frame *frame, const char *key, const struct device_key *device);
void message_put_protection(struct frame *frame, const char *key,
                            const struct protection *protection);

void message_put_signed(struct frame *frame, const char *key, int64_t value);

/** A number, reduced to @most; 0 where there is none. */
uint64_t message_number(const msgpack_object *map, const char *key, uint64_t most);
/** 0 where there is none, or it does not fit. */
int32_t message_signed(const msgpack_object *map, const char *key);
/** UINT32_MAX where there is none. */
uint32_t message_vdev(const msgpack_object *map, const char *key);
/** The index of the field's text in @words; 0 where it has none of them. */
unsigned message_word(const msgpack_object *map, const char *key, const char *const *words,
                      size_t count);
/** False: the field is no key of a device, and @ret_device is unchanged. */
bool message_take_device(const msgpack_object *map, const char *key, struct device_key *ret_device);
void message_take_protection(const msgpack_object *map, const char *key,
                             struct protection *ret_protection);
/** True when the field is there, and of that type. */
bool message_is_number(const msgpack_object *map, const char *key);
bool message_is_map(const msgpack_object *map, const char *key);

/** The elements of an array, and how many: no more than @most. */
size_t message_items(const msgpack_object *map, const char *key, const msgpack_object **ret_items,
                     size_t most);
/** An element; one of another type is 0, false, or leaves @ret_device as it was. */
bool message_item_u64(const msgpack_object *item, uint64_t *ret_value);
void message_item_bool(const msgpack_object *item, bool *ret_value);
bool message_item_device(const msgpack_object *item, struct device_key *ret_device);

#endif
