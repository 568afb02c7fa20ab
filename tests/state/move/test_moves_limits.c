#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/memory/memory.h"
#include "state/program/kernel.h"
#include "tests/state/move/test_moves_common.h"

/* M4. */

#define BIG ((size_t)8 << 20)

struct timed {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem buffer;
    unsigned char *bytes;
};

static void timed_open(struct timed *t, const char *text)
{
    engine_rig_open(&t->rig, text);
    engine_program_open(&t->rig, 0, NULL, &t->program);
    t->bytes = malloc(BIG);
    cr_assert_not_null(t->bytes);
    for (size_t i = 0; i < BIG; i++)
        t->bytes[i] = (unsigned char)(i * 31);
    t->buffer =
        engine_buffer(t->program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BIG, t->bytes);
}

/* The program goes on where it was, and nothing is left where it did not go. */
static void timed_check(struct timed *t)
{
    unsigned char *bytes = malloc(BIG);
    cr_assert_not_null(bytes);
    cr_assert_str_eq(place_of_vdev(), "one");
    cr_assert(engine_rig_empties(&t->rig, "two"), "alive: %s", engine_rig_alive(&t->rig, "two"));
    OK(clEnqueueReadBuffer(t->program.queue, t->buffer, CL_TRUE, 0, BIG, bytes, 0, NULL, NULL));
    cr_assert(memcmp(bytes, t->bytes, BIG) == 0);
    free(bytes);
    engine_rig_moves(&t->rig, "two");
}

static void timed_move(struct timed *t, unsigned deadline_ms, const atomic_bool *cancel,
                       struct move_report *ret_report)
{
    struct move_request request = {
        .target = engine_rig_key(&t->rig, "two"),
        .deadline_ns = deadline_ms ? engine_rig_now() + deadline_ms * 1000000ull : 0,
        .cancel = cancel,
    };
    move_run(&request, ret_report);
}

Test(deadline, passes_while_it_copies, .timeout = 60)
{
    static struct timed t;
    struct move_report report;
    timed_open(&t, "[one] name=one [two] name=two link_mb_s=10");
    timed_move(&t, 300, NULL, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    cr_assert_str_not_empty(report.reason);
    cr_assert_lt(report.reached, MOVE_COMMIT);
    timed_check(&t);
}

static void *cancel_soon(void *data)
{
    engine_rig_sleep(200);
    atomic_store((atomic_bool *)data, true);
    return NULL;
}

Test(deadline, or_a_cancellation_comes_while_it_copies, .timeout = 60)
{
    static struct timed t;
    static atomic_bool cancel;
    struct move_report report;
    pthread_t thread;
    timed_open(&t, "[one] name=one [two] name=two link_mb_s=10");
    cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    timed_move(&t, 0, &cancel, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_assert_str_not_empty(report.reason);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    timed_check(&t);
}

static void *launch_slowly(void *data)
{
    struct timed *t = data;
    cl_program program;
    const char *text = SOURCE;
    cl_uint one = 1;
    cl_int error;
    cl_mem buffer = engine_buffer(t->program.context, CL_MEM_READ_WRITE, SIZE, NULL);
    program = clCreateProgramWithSource(t->program.context, 1, &text, NULL, &error);
    clBuildProgram(program, 0, NULL, "", NULL, NULL);
    cl_kernel add = clCreateKernel(program, "add", &error);
    clSetKernelArg(add, 0, sizeof(cl_mem), &buffer);
    clSetKernelArg(add, 1, sizeof(one), &one);
    launch(t->program.queue, add, WORDS, 0, NULL);
    clFinish(t->program.queue);
    RELEASE(add, program, buffer);
    return NULL;
}

/* A driver that takes its time inside a call keeps a thread inside the gate. */
Test(deadline, passes_while_a_call_takes_long, .timeout = 60)
{
    static struct timed t;
    struct move_report report;
    pthread_t thread;
    timed_open(&t, "[one] name=one launch_ms=1000 [two] name=two");
    cr_assert_eq(pthread_create(&thread, NULL, launch_slowly, &t), 0);
    while (emu_shared_calls(t.rig.emu, "one", "clEnqueueNDRangeKernel") == 0)
        engine_rig_sleep(1);
    timed_move(&t, 100, NULL, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    cr_assert_lt(report.reached, MOVE_COPY);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    timed_check(&t);
}

Test(deadline, passes_while_programs_build, .timeout = 60)
{
    static struct timed t;
    struct move_report report;
    timed_open(&t, "[one] name=one [two] name=two build_ms=200");
    for (int i = 0; i < 20; i++)
        (void)BUILT(t.program.context, SOURCE, "");
    uint64_t before = engine_rig_now();
    timed_move(&t, 300, NULL, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    cr_assert_eq(report.reached, MOVE_PREPARE, "%s", move_phase_name(report.reached));
    cr_assert_lt(engine_rig_now() - before, 2500000000u, "it built all of them");
    timed_check(&t);
}

Test(deadline, or_a_cancellation_comes_while_programs_build, .timeout = 60)
{
    static struct timed t;
    static atomic_bool cancel;
    struct move_report report;
    pthread_t thread;
    timed_open(&t, "[one] name=one [two] name=two build_ms=200");
    for (int i = 0; i < 5; i++)
        (void)BUILT(t.program.context, SOURCE, "");
    cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    timed_move(&t, 0, &cancel, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_assert_eq(report.reached, MOVE_PREPARE, "%s", move_phase_name(report.reached));
    cr_assert_lt(emu_shared_calls(t.rig.emu, "two", "clBuildProgram"), 5, "it built all of them");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    timed_check(&t);
}

Test(deadline, is_that_of_a_move_that_waits_for_another, .timeout = 60)
{
    static struct timed t;
    static atomic_bool cancel = true;
    struct move_report report;
    timed_open(&t, CONFIG);
    timed_move(&t, 0, &cancel, &report);
    cr_assert_eq(report.result, MOVE_CANCELED);
    struct move_request late = {.target = engine_rig_key(&t.rig, "two"), .deadline_ns = 1};
    move_run(&late, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    timed_check(&t);
}

/* PLAN. */

struct refusal {
    const char *config; /* of the target */
    void (*use)(struct engine_rig *rig);
    const char *what, *used, *offered;
};

static void use_groups(struct engine_rig *rig)
{
    struct engine_program p;
    cl_uint one = 1;
    engine_program_open(rig, 0, SOURCE, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_kernel add = engine_kernel(p.program, "add");
    ARGS(add, buffer, one);
    launch(p.queue, add, WORDS, 128, NULL);
    OK(clFinish(p.queue));
}

static void use_local_memory(struct engine_rig *rig)
{
    struct engine_program p;
    engine_program_open(rig, 0, SOURCE, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_kernel share = engine_kernel(p.program, "share");
    OK(clSetKernelArg(share, 0, sizeof(cl_mem), &buffer));
    OK(clSetKernelArg(share, 1, 20000, NULL));
    launch(p.queue, share, WORDS, 4, NULL);
    OK(clFinish(p.queue));
}

static void use_images(struct engine_rig *rig)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    struct engine_program p;
    engine_program_open(rig, 0, NULL, &p);
    MADE(clCreateImage, p.context, CL_MEM_READ_WRITE, &format, &desc, NULL);
}

static void use_memory(struct engine_rig *rig)
{
    struct engine_program p;
    engine_program_open(rig, 0, NULL, &p);
    for (int i = 0; i < 3; i++)
        engine_buffer(p.context, CL_MEM_READ_WRITE, 1 << 20, NULL);
}

static void use_doubles(struct engine_rig *rig)
{
    struct engine_program p;
    engine_program_open(rig, 0,
                        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
                        "__kernel void half_of(__global float *f, double d) { f[0] = d / 2; }",
                        &p);
    engine_kernel(p.program, "half_of");
}

static void use_extension(struct engine_rig *rig)
{
    struct engine_program p;
    engine_program_open(rig, 0,
                        "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
                        "__kernel void nothing(void) {}",
                        &p);
}

static void use_alignment(struct engine_rig *rig)
{
    const cl_buffer_region region = {1024, 512};
    struct engine_program p;
    engine_program_open(rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
}

static void use_language(struct engine_rig *rig)
{
    struct engine_program p;
    engine_program_open(rig, 0, NULL, &p);
    (void)BUILT(p.context, SOURCE, "-cl-std=CL3.0");
}

static const struct refusal refusals[] = {
    {"max_work_group_size=64", use_groups, "work-items in a work-group", "128", "64"},
    {"local_memory=8KiB", use_local_memory, "bytes of local memory", "20000", "8192"},
    {"no_images=yes", use_images, "images", "", "none"},
    {"memory=2MiB max_alloc=2MiB", use_memory, "bytes of device memory", "3145728", "2097152"},
    {"max_alloc=512KiB", use_memory, "bytes in one memory object", "1048576", "524288"},
    {"no_fp64=yes", use_doubles, "fp64", "", ""},
    {"extensions=cl_khr_byte_addressable_store", use_extension, "cl_khr_int64_base_atomics", "",
     "lacks"},
    {"mem_align=4096", use_alignment, "sub-buffers aligned", "8192", "32768"},
    {"version=1.2", use_language, "OpenCL C", "3.0", "1.2"},
};

static unsigned of_refusals(void)
{
    return ARRAY_SIZE(refusals);
}

Test(plan, refuses_with_the_limit_in_words, .times = of_refusals)
{
    const struct refusal *refusal = &refusals[cases_number()];
    struct engine_rig rig;
    struct move_report report;
    char text[256];
    snprintf(text, sizeof(text), "[one] name=one [two] name=two %s", refusal->config);
    engine_rig_open(&rig, text);
    refusal->use(&rig);
    uint64_t made = emu_shared_calls(rig.emu, "two", "clCreateContext");
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_REFUSED, "%s: %s", refusal->config,
                 move_result_name(report.result));
    cr_assert_eq(report.reached, MOVE_PLAN);
    const char *const words[] = {refusal->what, refusal->used, refusal->offered, "two"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        cr_assert_not_null(strstr(report.reason, words[i]), "%s: no '%s' in '%s'", refusal->config,
                           words[i], report.reason);
    struct move_request dry = {.target = engine_rig_key(&rig, "two"), .dry_run = true};
    struct move_report again;
    move_run(&dry, &again);
    cr_assert_eq(again.result, MOVE_REFUSED);
    cr_assert_str_eq(again.reason, report.reason);
    cr_assert_eq(emu_shared_calls(rig.emu, "two", "clCreateContext"), made, "PLAN made a context");
    cr_assert_str_eq(place_of_vdev(), "one");
}

Test(plan, says_of_a_dry_run_that_it_would_do_without_doing_it)
{
    struct engine_rig rig;
    struct move_report report;
    engine_rig_open(&rig, CONFIG);
    use_groups(&rig);
    struct move_request dry = {.target = engine_rig_key(&rig, "two"), .dry_run = true};
    move_run(&dry, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_str_eq(place_of_vdev(), "one");
}

Test(plan, refuses_to_go_where_the_program_is)
{
    struct engine_rig rig;
    struct move_report report;
    engine_rig_open(&rig, CONFIG);
    cr_assert_eq(engine_rig_move(&rig, "one", &report), MOVE_REFUSED);
    cr_assert_str_not_empty(report.reason);
    engine_rig_moves(&rig, NULL);
    cr_assert_eq(engine_rig_move(&rig, NULL, &report), MOVE_REFUSED);
    cr_assert_str_not_empty(report.reason);
}

/* What a program gives up, of what its driver needs to be opened again. */

static void give_up_root(void)
{
    char path[] = "/tmp/reseat-root-XXXXXX";
    cr_assert_not_null(mkdtemp(path));
    cr_assert_eq(chdir(path), 0);
    cr_assert_eq(rmdir(path), 0); /* nothing is found or left in what is gone */
    if (chroot(".") != 0)
        cases_skip("chroot is not allowed");
}

/* POCL's cache was its old user's alone. */
static void give_up_user(void)
{
    if (geteuid() != 0)
        cases_skip("only root may become somebody else");
    cr_assert_eq(chmod(getenv("POCL_CACHE_DIR"), 0700), 0);
    cr_assert_eq(setresuid(65534, 65534, 65534), 0);
}

static void give_up_files(void)
{
    const struct rlimit none = {3, 3};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void give_up_some_files(void)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_cur > 256 ? 256 : limit.rlim_cur - 1;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The emulated driver keeps no binary of what may include what it does not know. */
#define BUILT_ANEW "#if 0\n#include \"nothing\"\n#endif\n" SOURCE

/* A program that has built and run, suspended after @give_up. @why: a word of the refusal; NULL:
 * there is none. */
static void suspend_after(void (*give_up)(void), const char *why)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    const cl_uint zero = 0, one = 1;
    cl_uint words[WORDS];
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, BUILT_ANEW, &p);
    cl_mem buffer = engine_buffer(p.context, 0, SIZE, NULL);
    cl_kernel add = engine_kernel(p.program, "add");
    OK(clEnqueueFillBuffer(p.queue, buffer, &zero, sizeof(zero), 0, SIZE, 0, NULL, NULL));
    ARGS(add, buffer, one);
    launch(p.queue, add, WORDS, 16, NULL);
    OK(clFinish(p.queue));
    int64_t before = emu_shared_live_all(rig.emu, "one");
    uint64_t contexts = emu_shared_calls(rig.emu, "one", "clCreateContext");
    give_up();
    enum move_result result = engine_rig_move(&rig, NULL, &report);
    if (why) {
        cr_assert_eq(result, MOVE_REFUSED, "%s", report.reason);
        cr_assert_not_null(strstr(report.reason, why), "%s", report.reason);
        cr_assert_str_eq(place_of_vdev(), "one");
        cr_assert_eq(emu_shared_live_all(rig.emu, "one"), before, "%s",
                     engine_rig_alive(&rig, "one"));
    } else {
        cr_assert_eq(result, MOVE_DONE, "%s", report.reason);
        cr_assert_eq(emu_shared_calls(rig.emu, "one", "clCreateContext"), contexts + 1);
        cr_assert(engine_rig_empties(&rig, "one"), "alive: %s", engine_rig_alive(&rig, "one"));
        engine_rig_moves(&rig, "one");
        engine_rig_moves(&rig, NULL); /* what works now need not be tried again */
        engine_rig_moves(&rig, "one");
        cr_assert_eq(emu_shared_calls(rig.emu, "one", "clCreateContext"), contexts + 3);
    }
    launch(p.queue, add, WORDS, 16, NULL);
    OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], 2);
    RELEASE(add, buffer);
    engine_program_close(&p);
}

TestCall(plan, refuses_to_suspend_what_has_another_root_folder,
         suspend_after(give_up_root, "root folder"));
TestCall(plan, refuses_to_suspend_what_is_another_user_than_its_driver_needs,
         suspend_after(give_up_user, "user"));
TestCall(plan, refuses_to_suspend_what_can_open_no_more_files,
         suspend_after(give_up_files, "open files"));
TestCall(plan, suspends_what_can_still_be_opened_with_fewer_files,
         suspend_after(give_up_some_files, NULL));

/* Compilers pass over what they do not know, and take a later language than their device's. */
Test(plan, resumes_where_it_was_what_the_device_served_without_offering_it)
{
    static const char source[] = "#pragma OPENCL EXTENSION cl_amd_printf : enable\n" SOURCE;
    struct engine_rig rig;
    struct engine_program p;
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, source, &p);
    engine_rig_moves(&rig, NULL);
    engine_rig_moves(&rig, "one");
    engine_rig_moves(&rig, "two");
    engine_rig_moves(&rig, "one");
    engine_program_close(&p);
}

/* Launches that a device's compiler does not offer. */

struct launched {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
    cl_mem buffer;
    cl_uint sum;
};

static void launched_open(struct launched *l)
{
    static const cl_uint zeroes[WORDS];
    cl_uint one = 1;
    engine_rig_open(&l->rig, "[one] name=one [two] name=two kernel_work_group_size=add:16");
    engine_program_open(&l->rig, 0, SOURCE, &l->program);
    l->add = engine_kernel(l->program.program, "add");
    l->buffer = engine_buffer(l->program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE,
                              (void *)(uintptr_t)zeroes);
    ARGS(l->add, l->buffer, one);
}

static void launched_add(struct launched *l, size_t group)
{
    cl_uint words[WORDS];
    launch(l->program.queue, l->add, WORDS, group, NULL);
    l->sum++;
    OK(clEnqueueReadBuffer(l->program.queue, l->buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], l->sum, "word %zu", i);
}

Test(launches, that_the_target_cannot_offer_are_found_in_prepare)
{
    static struct launched l;
    struct move_report report;
    launched_open(&l);
    launched_add(&l, 64);
    cr_assert_eq(engine_rig_move(&l.rig, "two", &report), MOVE_ROLLED_BACK, "%s",
                 move_result_name(report.result));
    cr_assert_eq(report.reached, MOVE_PREPARE);
    cr_assert_not_null(strstr(report.reason, "add"), "%s", report.reason);
    cr_assert_not_null(strstr(report.reason, "64"), "%s", report.reason);
    cr_assert_not_null(strstr(report.reason, "16"), "%s", report.reason);
    cr_assert_str_eq(place_of_vdev(), "one");
    cr_assert(engine_rig_empties(&l.rig, "two"), "alive: %s", engine_rig_alive(&l.rig, "two"));
    launched_add(&l, 64);
}

Test(launches, that_the_device_cannot_offer_go_back_to_where_the_program_began)
{
    static struct launched l;
    launched_open(&l);
    launched_add(&l, 16);
    engine_rig_moves(&l.rig, "two");
    launched_add(&l, 16);
    cr_assert_str_eq(place_of_vdev(), "two");
    launched_add(&l, 64);
    cr_assert_str_eq(place_of_vdev(), "one");
    cr_assert(engine_rig_empties(&l.rig, "two"), "alive: %s", engine_rig_alive(&l.rig, "two"));
}

Test(launches, that_no_device_can_offer_fail_as_they_would_natively)
{
    static struct launched l;
    const size_t items = WORDS, group = 3;
    launched_open(&l);
    OK(clReleaseKernel(l.add));
    l.add = engine_kernel(l.program.program, "add");
    cl_int error =
        clEnqueueNDRangeKernel(l.program.queue, l.add, 1, NULL, &items, NULL, 0, NULL, NULL);
    cr_assert_eq(error, CL_INVALID_KERNEL_ARGS, "%d", error);
    engine_rig_moves(&l.rig, "two");
    error = clEnqueueNDRangeKernel(l.program.queue, l.add, 1, NULL, &items, &group, 0, NULL, NULL);
    cr_assert_lt(error, 0);
}
