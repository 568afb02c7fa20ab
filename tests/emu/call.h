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

/** Directions of a device's link. */
enum emu_link { EMU_LINK_IN, EMU_LINK_OUT, EMU_LINKS };

/**
 * Count a call and decide whether it fails before the driver sees it: armed, device gone, or the
 * function newer than the device. Thread-safe. Every begin has its emu_call_end().
 */
cl_int emu_call_begin(struct emu_call *call, int function, struct emu_device *device);

/** Does what the call under way in this thread enqueues end in an error? Of EMU_ERROR_AT_END. */
bool emu_call_fails_at_end(void);

/** Trace the call. Returns @err, or the loss of the device during a clFinish. */
cl_int emu_call_end(const struct emu_call *call, cl_int err);

/** Take as long as @bytes take on the device's link; transfers of one direction queue up. Returns
 * CL_OUT_OF_RESOURCES when the device vanishes meanwhile. */
cl_int emu_link_wait(struct emu_device *device, enum emu_link link, uint64_t bytes);

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
