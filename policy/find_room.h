#ifndef RESEAT_POLICY_FIND_ROOM_H
#define RESEAT_POLICY_FIND_ROOM_H

#include "policy/victims.h"

/*
 * Devices with room for a program, and devices where other programs could make room. Memory that is
 * reserved for the head of the queue does not count as free for programs behind it.
 */

/** Free bytes on @device that @program may have. */
uint64_t room_for(struct view *view, uint32_t program, uint32_t device);
/** The device whose memory is reserved for the head, or NONE. There is a head. */
uint32_t device_kept(struct view *view);
/** Whether any device has room for @bytes. For programs that may not stay on their own device. */
bool has_room(struct view *view, uint32_t program, uint64_t bytes);
/** The best other device with room for @bytes, of those with room for the peak of its former runs
 * if there are any; or POLICY_NONE. */
uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes);
/** The other device with the most room, at least @least, counted up to @full; or POLICY_NONE. */
uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full);
/** Whether @program may go to @device and all of it fits there, also at its peak. */
bool may_take(struct view *view, uint32_t program, uint32_t device);
/**
 * The room for @bytes that does the least harm, or with the fewest bytes missing. For a program
 * behind the head, the device that the head waits for is left out.
 */
struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters);

#endif
