#ifndef RESEAT_TESTS_EMU_CONFIG_H
#define RESEAT_TESTS_EMU_CONFIG_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/emu/emu.h"

#define EMU_TEXT_MAX         512
#define EMU_KERNEL_RULES_MAX 16
#define EMU_UUID_SIZE        16

/** What the emulated compiler offers one kernel. */
struct emu_kernel_rule {
    char kernel[EMU_NAME_MAX]; /**< "*" for every kernel. */
    size_t work_group_size;
};

/** How the device calls event callbacks. */
enum emu_callbacks {
    EMU_CALLBACKS_KEPT,      /**< As the wrapped driver does. */
    EMU_CALLBACKS_NEVER,     /**< Registered without an error, and never called. */
    EMU_CALLBACKS_BACKWARDS, /**< Those for CL_COMPLETE first, the others after them. */
    EMU_CALLBACKS_LATE,      /**< Those for CL_COMPLETE a while after that. */
    EMU_CALLBACKS_COMPLETE,  /**< Those for CL_COMPLETE say so also of a command that failed. */
};

/** One emulated device as its section describes it. 0 means the wrapped device's own value. */
struct emu_config {
    char section[EMU_NAME_MAX];
    char name[EMU_NAME_MAX];
    char extensions[EMU_TEXT_MAX]; /**< Space-separated; "" for those of the wrapped device. */
    char build_fails[EMU_TEXT_MAX];
    char paced[EMU_TEXT_MAX]; /**< Kernels that items_per_s is for; "" for all. */
    char meter[EMU_TEXT_MAX]; /**< The file of its energy meter; "": it has none. */
    uint64_t idle_w, busy_w;  /**< Watts that it draws, and while launches run. */
    size_t base;              /**< Index among the wrapped driver's devices. */
    cl_device_type type;
    uint64_t memory, max_alloc, local_memory, launch_memory, mem_align; /**< Bytes. */
    size_t max_work_group_size;
    cl_uint compute_units;
    cl_uint version; /**< 120 for 1.2; never 0. */
    enum emu_callbacks callbacks;
    uint64_t link_mb_s, setup_us, launch_ms, items_per_s, build_ms, build_starts, build_loses,
        context_ms, open_ms, release_ms, binary_size;
    bool has_extensions, host_unified, no_fp64, no_images, no_compiler, no_times, no_barrier_times,
        has_uuid;
    bool own_memory, late_status, greedy, careless, engines;
    bool arg_info_fails; /**< Kernels that print without parameters do not build with that. */
    bool lost_hangs;   /**< Once it vanished its waits never return, and its commands never end. */
    cl_int lost_error; /**< What its calls say then; 0: what fits each. */
    unsigned char uuid[EMU_UUID_SIZE];
    struct emu_kernel_rule kernels[EMU_KERNEL_RULES_MAX];
    size_t kernel_count;
};

/**
 * Parse @text (see README.md).
 *
 * @configs    Room for EMU_DEVICES_MAX.
 * @ret_count  Sections read.
 * @ret_error  What is wrong, for the person who wrote it; set with -EINVAL. EMU_TEXT_MAX bytes.
 *
 * Returns 0 or -EINVAL.
 */
MUST_CHECK int emu_config_parse(const char *text, struct emu_config *configs, size_t *ret_count,
                                char *ret_error);

/** emu_config_parse() of the file at @path; also -errno from reading it and -EFBIG. */
MUST_CHECK int emu_config_read(const char *path, struct emu_config *configs, size_t *ret_count,
                               char *ret_error);

/** One device without limits, for when there is no configuration. */
void emu_config_default(struct emu_config *config);

/** True when @list (comma-separated, or "all") has a word that occurs in @text. */
bool emu_config_matches(const char *list, const char *text);

#endif
