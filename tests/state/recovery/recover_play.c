#include "tests/state/recovery/recover_play.h"

#include "state/command/journal.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

const char *const play_source = "kernel void add(constant uint *a, global uint *b, uint n)\n"
                                "{ size_t i = get_global_id(0); b[i] = b[i] * 5 + a[i] * 3 + n; }\n"
                                "kernel void idle(uint n) {}\n";

struct engine_rig rig;

TestSuite(recover, .fini = protect_end);

static void CL_CALLBACK called_back(cl_event event, cl_int status, void *data)
{
    struct play *play = data;
    (void)event;
    atomic_fetch_add(&play->failed, status != CL_COMPLETE);
    atomic_fetch_add(&play->called, 1);
}

void watch(struct play *play, cl_event event)
{
    OK(clSetEventCallback(event, CL_COMPLETE, called_back, play));
    play->registered++;
}

void open_rig_with(const char *a, const char *b)
{
    char config[512];
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    (void)snprintf(config, sizeof(config),
                   "[a] name=a own_memory=yes %s\n[b] base=1 name=b own_memory=yes %s\n"
                   "[c] base=1 name=c own_memory=yes\n",
                   a, b);
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    engine_rig_open(&rig, config);
    cr_assert_eq(protect_begin(&settings), 0);
}

void open_rig(const char *a)
{
    open_rig_with(a, "");
}

void open_play(struct play *play, cl_command_queue_properties properties)
{
    memset(play, 0, sizeof(*play));
    engine_program_open(&rig, properties, play_source, &play->program);
    play->kernel = engine_kernel(play->program.program, "add");
    for (cl_uint i = 0; i < COUNT; i++) {
        play->a_is[i] = i * 7 + 1;
        play->b_is[i] = i;
    }
    play->a = engine_buffer(play->program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES,
                            play->a_is);
    play->b = engine_buffer(play->program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clEnqueueWriteBuffer(play->program.queue, play->b, CL_TRUE, 0, BYTES, play->b_is, 0, NULL,
                            NULL));
    cr_assert_eq(protect_now(), 0);
    cr_assert(journal_broken() == NULL || vdevs_count() > 1);
}

void close_play(struct play *play)
{
    RELEASE(play->a, play->b, play->kernel);
    engine_program_close(&play->program);
}

void launch(struct play *play, cl_uint n, cl_uint waits, const cl_event *wait_list,
            cl_event *ret_event)
{
    const size_t global = COUNT;
    OK(clSetKernelArg(play->kernel, 0, sizeof(cl_mem), &play->a));
    OK(clSetKernelArg(play->kernel, 1, sizeof(cl_mem), &play->b));
    OK(clSetKernelArg(play->kernel, 2, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(play->program.queue, play->kernel, 1, NULL, &global, NULL, waits,
                              wait_list, ret_event));
    for (cl_uint i = 0; i < COUNT; i++)
        play->b_is[i] = play->b_is[i] * 5 + play->a_is[i] * 3 + n;
}

void has(struct play *play, cl_mem buffer, const cl_uint *is)
{
    cl_uint bytes[COUNT];
    OK(clEnqueueReadBuffer(play->program.queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
    cr_assert_arr_eq(bytes, is, BYTES);
}

bool is_on(const char *name)
{
    struct device *device = atomic_load(&the_vdevs[0]->device);
    return device && strcmp(device->key.device, name) == 0;
}

void called_once(const struct play *play)
{
    for (unsigned i = 0; atomic_load(&play->called) < play->registered && i < 5000; i++)
        engine_rig_sleep(1);
    engine_rig_sleep(2);
    cr_assert_eq(atomic_load(&play->called), play->registered);
    cr_assert_eq(atomic_load(&play->failed), 0);
}

uint64_t recoveries(void)
{
    struct protect_status status;
    protect_read(&status);
    return status.recoveries;
}

void again(void)
{
    (void)emu_shared_disarm(rig.emu, "a");
    (void)emu_shared_restore(rig.emu, "a");
    (void)emu_shared_disarm(rig.emu, "b");
    (void)emu_shared_restore(rig.emu, "b");
    if (!is_on("a"))
        engine_rig_moves(&rig, "a");
}

void go(const char *name)
{
    struct move_request request = {.target = engine_rig_key(&rig, name)};
    struct move_report report;
    move_run(&request, &report);
}

void leave_on_demand(const char *name)
{
    struct move_request request = {
        .target = engine_rig_key(&rig, name), .fetch = MOVE_FETCH_ON_DEMAND, .bandwidth = 1024};
    struct move_report report;
    move_run(&request, &report);
}
