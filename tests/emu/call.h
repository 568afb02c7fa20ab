#ifndef RESEAT_TESTS_EMU_CALL_H
#define RESEAT_TESTS_EMU_CALL_H

#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct emu_device;
struct emu_object;

/** What the generator knows of a function of the dispatch table. */
struct emu_function_info {
    const char *name;
    cl_int natural_error; /**< What EMU_ERROR_NATURAL stands for. */
    cl_int lost_error;    /**< What it answers when its device has vanished. */
    cl_uint since;        /**< 120 for OpenCL 1.2. */
    bool host;            /**< Answers by itself when its device has vanished. */
};

extern const struct emu_function_info emu_functions[];

/** One call under way. */
struct emu_call {
    struct emu_device *device;
    int function;
    uint64_t number;
    uint32_t losses;
};

/** What a device has one of: a direction of its link, its cores. */
enum emu_engine { EMU_LINK_IN, EMU_LINK_OUT, EMU_CORES, EMU_ENGINES };

/**
 * Count a call and decide whether it fails before the driver sees it: armed, device gone, or the
 * function newer than the device. Thread-safe. Every begin has its emu_call_end().
 */
cl_int emu_call_begin(struct emu_call *call, int function, struct emu_device *device);

/** Does what the call under way in this thread enqueues end in an error? Of EMU_ERROR_AT_END. */
bool emu_call_fails_at_end(void);

/** Trace the call. Returns @err, or the loss of the device during a clFinish. */
cl_int emu_call_end(const struct emu_call *call, cl_int err);

/** Nanoseconds that @bytes take on the device's link. */
uint64_t emu_link_ns(const struct emu_device *device, uint64_t bytes);
/** Take as long as @bytes take on the device's link; transfers of one direction queue up. Returns
 * CL_OUT_OF_RESOURCES when the device vanishes meanwhile. */
cl_int emu_link_wait(struct emu_device *device, enum emu_engine link, uint64_t bytes);
/** Of an engine, @duration when it is free next: until when, of emu_now_ns(). */
uint64_t emu_engine_take(struct emu_device *device, enum emu_engine engine, uint64_t duration);
/** Wait until @end, or return CL_OUT_OF_RESOURCES when the device vanishes meanwhile. */
cl_int emu_engine_wait(struct emu_device *device, uint64_t end);

/** Have what is enqueued to @queue next begin when an engine has had @duration for it, from when it
 * could begin: engine.c. @real_waits are the driver's. */
cl_int emu_engine_gate(struct emu_device *device, enum emu_engine engine, cl_command_queue queue,
                       uint64_t duration, cl_uint count, const cl_event *real_waits);
/** A read or write that is enqueued next takes its time, in the call or as engines do. */
cl_int emu_transfer(struct emu_device *device, enum emu_engine engine, uint64_t bytes,
                    cl_command_queue queue, cl_uint count, const cl_event *waits);

/** What the call under way enqueues lasts longer than for the driver, and how much. */
void emu_call_lasts(uint64_t ns);
uint64_t emu_call_lasts_ns(void);

/** What a wait for a vanished device does that hangs: it never returns. */
_Noreturn void emu_hang(void);

/** Sleep, whatever signals arrive. */
void emu_sleep_ms(uint64_t ms);
/** Until a moment of emu_now_ns(), of the monotonic clock. */
void emu_sleep_until_ns(uint64_t when);
uint64_t emu_now_ns(void);

/** Read EMU_TRACE and EMU_FAIL. Once, before the first call. Complains on stderr. */
void emu_call_init(void);

#endif
