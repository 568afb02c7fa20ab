#ifndef RESEAT_POLICY_FIND_ROOM_H
#define RESEAT_POLICY_FIND_ROOM_H

#include "policy/victims.h"

/*
 * Where a program could go: devices that have room for it, and those where others could make some.
 * What the head of the queue waits for is kept for it, and is not free for those behind it.
 */

/** Bytes free for @program on a device. */
uint64_t room_for(struct view *view, uint32_t program, uint32_t device);
/** Whether a device has room for @bytes; asked of those whose own is none that they may use. */
bool has_room(struct view *view, uint32_t program, uint64_t bytes);
/** The best other device with room for @bytes, or POLICY_NONE. */
uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes);
/** The other device with the most room, at least for @least and at most @full; or POLICY_NONE. */
uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full);
/** Whether @device is open to it and has room for all of it. */
bool may_take(struct view *view, uint32_t program, uint32_t device);
/**
 * Where @bytes could be had for @program with the least harm, or where the fewest are missing.
 * Nothing is found for one behind the head on the device that the head waits for.
 */
struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters);

#endif
