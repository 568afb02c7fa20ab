#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/remote/rogue.h"
#include "tests/support/calls.h"

/* Drivers take their own objects' addresses on trust. What a client says must never become one, nor
   bring objects together that are not of one context, nor names of files. */

static struct served served;
static struct rogue good, rogue;

static void start(void)
{
    /* Two drivers. */
    setenv("TEST_VENDORS", "/etc/OpenCL/vendors", 1);
    setenv("RUSTICL_ENABLE", "llvmpipe", 1);
    served_start(&served, NULL);
    rogue_begin(&good, &served);
    rogue_make_queue(&good);
    rogue_must_work(&good, 1);
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
}

TestSuite(remote_rules, .init = start, .timeout = 120);

static void ended_for(const char *reason)
{
    rogue_must_end(&rogue);
    rogue_ends(&good, &served);
    cr_assert(served_writes(&served, reason));
}

static void goes_on(void)
{
    rogue_must_work(&rogue, 3);
    stream_finish(&rogue.stream);
    rogue_ends(&good, &served);
}

#define ON_QUEUE                                                                                   \
    {                                                                                              \
        .queue = QUEUE                                                                             \
    }
#define TOLD(number)                                                                               \
    {                                                                                              \
        .queue = QUEUE, .event = id_make(ID_EVENT, 0, number), .purpose = COMMAND_TELL             \
    }

/* ---- arguments ---- */

static const char all_kinds[] =
    "typedef sampler_t chosen; typedef struct { int a, b; } pair;\n"
    "kernel void one(global int *a, read_only image2d_t b, sampler_t c, local int *d, chosen e,\n"
    "                pair f, int g) {\n"
    "    d[0] = f.a + g;\n"
    "    a[0] = d[0] + read_imagei(b, c, (int2)(0, 0)).x + read_imagei(b, e, (int2)(0, 0)).y;\n"
    "}\n";
enum { A_BUFFER, AN_IMAGE, A_SAMPLER, A_LOCAL, ANOTHER_SAMPLER, A_PAIR, AN_INT };

static void set_value(uint32_t index, size_t size)
{
    static const unsigned char bytes[64] = {0x41, 0x41, 0x41, 0x41, 0x41, 0x41};
    POST(&rogue.stream, set_value, .kernel = KERNEL, .index = index, .value = bytes,
         .value_size = size);
}

static void no_object_as_value(uint32_t index)
{
    rogue_make_kernel(&rogue, all_kinds);
    set_value(index, sizeof(void *));
    ended_for("a kernel argument's type is wrong");
}

TestCall(remote_rules, no_bytes_are_taken_for_a_buffer, no_object_as_value(A_BUFFER));
TestCall(remote_rules, no_bytes_are_taken_for_an_image, no_object_as_value(AN_IMAGE));
TestCall(remote_rules, no_bytes_are_taken_for_a_sampler, no_object_as_value(A_SAMPLER));
TestCall(remote_rules, no_bytes_are_taken_for_a_sampler_by_another_name,
         no_object_as_value(ANOTHER_SAMPLER));
TestCall(remote_rules, no_bytes_are_taken_for_local_memory, no_object_as_value(A_LOCAL));

Test(remote_rules, values_of_the_programs_own_types_are_taken)
{
    rogue_make_kernel(&rogue, all_kinds);
    set_value(A_PAIR, 8);
    set_value(AN_INT, 4);
    goes_on();
}

Test(remote_rules, a_value_has_the_size_of_its_type)
{
    rogue_make_kernel(&rogue, all_kinds);
    set_value(AN_INT, 16);
    ended_for("a kernel argument's size is wrong");
}

Test(remote_rules, there_are_no_more_arguments_than_there_are)
{
    rogue_make_kernel(&rogue, all_kinds);
    set_value(AN_INT + 1, 4);
    ended_for("a kernel argument's index is wrong");
}

Test(remote_rules, a_buffer_is_no_image)
{
    rogue_make_kernel(&rogue, all_kinds);
    rogue_make_buffer(&rogue, 64);
    POST(&rogue.stream, set_memory, .kernel = KERNEL, .index = AN_IMAGE, .memory = BUFFER);
    ended_for("a kernel argument's type is wrong");
}

Test(remote_rules, a_value_is_no_local_memory)
{
    rogue_make_kernel(&rogue, all_kinds);
    POST(&rogue.stream, set_local, .kernel = KERNEL, .index = AN_INT, .size = 64);
    ended_for("a kernel argument's type is wrong");
}

/* Of two arguments, the one that could not be set decides, whatever comes after it. */
Test(remote_rules, nothing_runs_with_what_an_argument_was_before)
{
    const uint64_t second = id_make(ID_MEMORY, 0, 1);
    rogue_make_kernel(&rogue, "kernel void one(global int *a, global int *b) { a[0] = b[0] = 7; }");
    rogue_make_buffer(&rogue, 64);
    POST(&rogue.stream, create_buffer, .memory = second, .context = CONTEXT, .size = 1ull << 60);
    const uint64_t set[][2] = {{0, BUFFER}, {1, BUFFER}, {0, second}, {1, BUFFER}};
    for (size_t i = 0; i < ARRAY_SIZE(set); i++)
        POST(&rogue.stream, set_memory, .kernel = KERNEL, .index = (uint32_t)set[i][0],
             .memory = set[i][1]);
    POST(&rogue.stream, launch, .command = TOLD(5), .kernel = KERNEL, .dimensions = 1,
         .global = {1});
    cl_int status = rogue_answer(&rogue, MSG_DONE);
    cr_assert(status == CL_INVALID_BUFFER_SIZE || status == CL_MEM_OBJECT_ALLOCATION_FAILURE,
              "its status is %d", status);
    goes_on();
}

/* ---- contexts ---- */

#define OTHER_CONTEXT id_make(ID_CONTEXT, 0, 1)
#define OTHER_QUEUE   id_make(ID_QUEUE, 0, 1)
#define OTHER_BUFFER  id_make(ID_MEMORY, 0, 1)
#define OTHER_EVENT   id_make(ID_EVENT, 0, 1)
#define OTHER_DRIVER  id_make(ID_DEVICE, 0, 2)

static void make_other_context(uint64_t device)
{
    POST(&rogue.stream, create_context, .context = OTHER_CONTEXT, .devices = &device,
         .devices_count = 1);
    POST(&rogue.stream, create_queue, .queue = OTHER_QUEUE, .context = OTHER_CONTEXT,
         .device = device);
    POST(&rogue.stream, create_buffer, .memory = OTHER_BUFFER, .context = OTHER_CONTEXT,
         .size = 64);
}

static const char two_contexts[] = "it used objects of two contexts together";

Test(remote_rules, a_buffer_of_another_context_is_not_read)
{
    make_other_context(DEVICE);
    POST(&rogue.stream, read_buffer, .command = ON_QUEUE, .buffer = OTHER_BUFFER, .size = 1);
    ended_for(two_contexts);
}

Test(remote_rules, a_buffer_of_another_driver_is_not_copied)
{
    make_other_context(OTHER_DRIVER);
    rogue_make_buffer(&rogue, 64);
    POST(&rogue.stream, copy_buffer, .command = ON_QUEUE, .source = BUFFER, .target = OTHER_BUFFER,
         .size = 1);
    ended_for(two_contexts);
}

Test(remote_rules, objects_of_another_context_do_not_migrate)
{
    const uint64_t objects[] = {BUFFER, OTHER_BUFFER};
    make_other_context(DEVICE);
    rogue_make_buffer(&rogue, 64);
    POST(&rogue.stream, migrate, .command = ON_QUEUE, .objects = objects, .objects_count = 2);
    ended_for(two_contexts);
}

Test(remote_rules, no_command_waits_for_an_event_of_another_driver)
{
    const uint64_t waits[] = {OTHER_EVENT};
    make_other_context(OTHER_DRIVER);
    POST(&rogue.stream, create_user_event, .event = OTHER_EVENT, .context = OTHER_CONTEXT);
    POST(&rogue.stream, barrier, .command = {.queue = QUEUE, .waits = waits, .waits_count = 1});
    ended_for(two_contexts);
}

Test(remote_rules, no_command_waits_for_a_commands_event_of_another_context)
{
    const uint64_t waits[] = {OTHER_EVENT};
    make_other_context(DEVICE);
    POST(&rogue.stream, marker,
         .command = {.queue = OTHER_QUEUE, .event = OTHER_EVENT, .purpose = COMMAND_NAMED});
    POST(&rogue.stream, barrier, .command = {.queue = QUEUE, .waits = waits, .waits_count = 1});
    ended_for(two_contexts);
}

Test(remote_rules, a_kernel_of_another_context_is_not_launched)
{
    make_other_context(DEVICE);
    rogue_make_kernel(&rogue, "kernel void one(void) {}");
    POST(&rogue.stream, launch, .command = {.queue = OTHER_QUEUE}, .kernel = KERNEL,
         .dimensions = 1, .global = {1});
    ended_for(two_contexts);
}

#define NOT_MADE id_make(ID_KERNEL, 0, 1)
#define CLONE    id_make(ID_KERNEL, 0, 2)

/* Of a kernel that was not made there are no arguments to copy. */
Test(remote_rules, a_clone_of_a_kernel_that_was_not_made_is_none)
{
    rogue_make_kernel(&rogue, "kernel void one(void) {}");
    POST(&rogue.stream, create_kernel, .kernel = NOT_MADE, .program = PROGRAM, .name = "none");
    POST(&rogue.stream, clone_kernel, .kernel = CLONE, .source = NOT_MADE);
    POST(&rogue.stream, get_kernel_group, .call = CALL, .kernel = CLONE, .device = DEVICE);
    cr_assert_neq(rogue_answer(&rogue, MSG_REPLY), CL_SUCCESS);
}

Test(remote_rules, a_buffer_of_another_context_is_no_argument)
{
    make_other_context(DEVICE);
    rogue_make_kernel(&rogue, "kernel void one(global int *a) { a[0] = 1; }");
    POST(&rogue.stream, set_memory, .kernel = KERNEL, .memory = OTHER_BUFFER);
    ended_for(two_contexts);
}

Test(remote_rules, an_image_is_not_made_of_another_contexts_buffer)
{
    make_other_context(OTHER_DRIVER);
    POST(&rogue.stream, create_image, .memory = BUFFER, .context = CONTEXT, .order = CL_RGBA,
         .data_type = CL_UNSIGNED_INT8, .type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .size = {4},
         .parent = OTHER_BUFFER);
    ended_for(two_contexts);
}

Test(remote_rules, devices_of_two_drivers_have_no_context)
{
    const uint64_t devices[] = {DEVICE, OTHER_DRIVER};
    POST(&rogue.stream, create_context, .context = OTHER_CONTEXT, .devices = devices,
         .devices_count = 2);
    ended_for(two_contexts);
}

Test(remote_rules, a_queue_is_of_a_device_of_its_contexts_driver)
{
    POST(&rogue.stream, create_queue, .queue = OTHER_QUEUE, .context = CONTEXT,
         .device = OTHER_DRIVER);
    ended_for(two_contexts);
}

Test(remote_rules, a_program_is_built_for_devices_of_its_driver)
{
    const uint64_t device = OTHER_DRIVER;
    rogue_make_kernel(&rogue, "kernel void one(void) {}");
    POST(&rogue.stream, build, .program = PROGRAM, .call = CALL, .devices = &device,
         .devices_count = 1, .options = "");
    ended_for(two_contexts);
}

/* Its queue was never made, and holds no context that is gone. */
Test(remote_rules, a_command_of_a_queue_that_is_none_needs_no_context)
{
    make_other_context(DEVICE);
    for (uint32_t i = 0; i < 64; i++) {
        const uint64_t context = id_make(ID_CONTEXT, 0, 2 + i), device = DEVICE;
        POST(&rogue.stream, create_context, .context = context, .devices = &device,
             .devices_count = 1);
        POST(&rogue.stream, create_queue, .queue = id_make(ID_QUEUE, 0, 2 + i), .context = context,
             .device = DEVICE, .properties = ~0ull);
        POST(&rogue.stream, release, .object = context);
        POST(&rogue.stream, marker,
             .command = {.queue = id_make(ID_QUEUE, 0, 2 + i),
                         .event = id_make(ID_EVENT, 0, 2 + i),
                         .purpose = COMMAND_TELL | COMMAND_NAMED});
        cr_assert(rogue_answer(&rogue, MSG_DONE) < 0);
    }
    goes_on();
}

/* ---- the rest ---- */

Test(remote_rules, only_user_events_are_ended)
{
    POST(&rogue.stream, marker,
         .command = {.queue = QUEUE, .event = OTHER_EVENT, .purpose = COMMAND_NAMED});
    POST(&rogue.stream, set_user_event, .event = OTHER_EVENT);
    ended_for("it set an event that is no user event");
}

Test(remote_rules, flags_of_extensions_reach_no_driver)
{
    POST(&rogue.stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .flags = 1 << 29,
         .size = 64);
    ended_for("a memory object has unsupported flags");
}

Test(remote_rules, an_image_of_a_buffer_has_no_content_of_its_own)
{
    static const unsigned char few[64];
    const uint64_t image = id_make(ID_MEMORY, 0, 1);
    rogue_make_buffer(&rogue, 1 << 20);
    POST(&rogue.stream, create_image, .memory = image, .context = CONTEXT, .order = CL_RGBA,
         .data_type = CL_UNSIGNED_INT8, .type = CL_MEM_OBJECT_IMAGE2D, .size = {4, 4},
         .row_pitch = 4096, .parent = BUFFER, .content = few, .content_size = sizeof(few));
    ended_for("an image made from another object has content of its own");
}

/* Compile a program with a header of that name. */
static cl_int compile_with(const char *name)
{
    const uint64_t device = DEVICE, header = id_make(ID_PROGRAM, 0, 1);
    static const char text[] = "#define ONE 1\n", source[] = "kernel void one(void) {}";
    POST(&rogue.stream, create_source, .program = header, .context = CONTEXT, .source = text,
         .source_size = strlen(text));
    POST(&rogue.stream, create_source, .program = PROGRAM, .context = CONTEXT, .source = source,
         .source_size = strlen(source));
    POST(&rogue.stream, compile, .program = PROGRAM, .call = CALL, .devices = &device,
         .devices_count = 1, .options = "", .headers = &header, .headers_count = 1, .names = name,
         .names_size = strlen(name) + 1);
    return rogue_answer(&rogue, MSG_REPLY);
}

/* Drivers write them to files in a folder of theirs. */
static void header_stays(const char *before)
{
    char file[128], name[256];
    struct stat stat_of;
    snprintf(file, sizeof(file), "%s/planted.h", served.folder);
    snprintf(name, sizeof(name), "%s%s", before, file);
    cr_assert_eq(compile_with(name), CL_INVALID_VALUE);
    bool planted = stat(file, &stat_of) == 0;
    unlink(file);
    cr_assert(!planted);
    goes_on();
}

TestCall(remote_rules, a_header_is_not_written_elsewhere,
         header_stays("../../../../../../../../../../../.."));
TestCall(remote_rules, a_header_is_not_written_elsewhere_from_a_folder_below,
         header_stays("below/../../../../../../../../../../../.."));
TestCall(remote_rules, a_header_has_no_whole_path, header_stays(""));

Test(remote_rules, a_header_may_be_in_a_folder_below)
{
    OK(compile_with("some..where/..one.h"));
    goes_on();
}
