#include "tests/interpose/aware/test_aware.h"
#include "tests/support/comes.h"

#define PATIENCE_NS 20000000000u
/* For what must not come. */
#define QUIET_MS 30

const char *const stage_names[STAGES] = {"checkpoint", "clean_up", "configure", "resume", "cancel"};

static const char *name_of(const struct reseat_device *device)
{
    return device->kind ? device->name : "none";
}

static int called(struct aware_program *program, enum stage stage,
                  const struct reseat_change *change)
{
    static const char *const reasons[] = {"?", "", "!", "~", "^"}; /* by RESEAT_MOVE... */
    pthread_mutex_lock(&program->lock);
    size_t used = strlen(program->calls);
    snprintf(program->calls + used, sizeof(program->calls) - used, "%s%s %s>%s%s", used ? ", " : "",
             stage_names[stage], name_of(change->from), name_of(change->to),
             reasons[change->reason]);
    pthread_mutex_unlock(&program->lock);
    atomic_fetch_add(&program->entered[stage], 1);
    if (program->acts[stage])
        program->acts[stage](program, change);
    while (atomic_load(&program->hangs[stage]))
        engine_rig_sleep(1);
    int result = program->fails[stage];
    program->fails[stage] = 0;
    return result;
}

static int checkpoint(void *data, const struct reseat_change *change)
{
    return called(data, CHECKPOINT, change);
}

static int clean_up(void *data, const struct reseat_change *change)
{
    return called(data, CLEAN_UP, change);
}

static int configure(void *data, const struct reseat_change *change)
{
    return called(data, CONFIGURE, change);
}

static int resume(void *data, const struct reseat_change *change)
{
    return called(data, RESUME, change);
}

static void cancel(void *data, const struct reseat_change *change)
{
    (void)called(data, CANCEL, change);
}

struct aware_program *aware_program_open_idle(void)
{
    static struct aware_program program = {.lock = PTHREAD_MUTEX_INITIALIZER};
    engine_rig_open(&program.rig, AWARE_DEVICES);
    program.program = (struct reseat_program){
        .size = sizeof(program.program),
        .checkpoint_ms = 10000,
        .clean_up_ms = 10000,
        .configure_ms = 10000,
        .resume_ms = 10000,
        .checkpoint = checkpoint,
        .clean_up = clean_up,
        .configure = configure,
        .resume = resume,
        .cancel = cancel,
        .data = &program,
    };
    return &program;
}

struct aware_program *aware_program_open(void)
{
    struct aware_program *program = aware_program_open_idle();
    cr_assert_eq(reseat_register(&program->program), RESEAT_OK);
    return program;
}

static bool is_expected(struct aware_program *program, const char *expected)
{
    pthread_mutex_lock(&program->lock);
    bool equal = strcmp(program->calls, expected) == 0;
    pthread_mutex_unlock(&program->lock);
    return equal;
}

void aware_program_expect(struct aware_program *program, const char *expected)
{
    uint64_t until = engine_rig_now() + PATIENCE_NS;
    while (!is_expected(program, expected) && engine_rig_now() < until)
        engine_rig_sleep(1);
    engine_rig_sleep(QUIET_MS);
    pthread_mutex_lock(&program->lock);
    cr_assert_str_eq(program->calls, expected);
    program->calls[0] = '\0';
    pthread_mutex_unlock(&program->lock);
}

void aware_program_await(struct aware_program *program, enum stage stage, unsigned count)
{
    cr_assert(COMES(atomic_load(&program->entered[stage]) >= count, PATIENCE_NS),
              "%s was not called", stage_names[stage]);
}

static void *move_thread(void *data)
{
    struct aware_move *move = data;
    move_run(&move->request, &move->report);
    return NULL;
}

void aware_move_begin(struct aware_program *program, struct aware_move *move, const char *target,
                      enum move_manner manner, unsigned deadline_ms)
{
    atomic_store(&move->cancel, false);
    move->request = (struct move_request){
        .target = target ? engine_rig_key(&program->rig, target) : NULL,
        .manner = manner,
        .deadline_ns = deadline_ms ? engine_rig_now() + deadline_ms * 1000000ull : 0,
        .cancel = &move->cancel,
    };
    cr_assert_eq(pthread_create(&move->thread, NULL, move_thread, move), 0);
}

enum move_result aware_move_end(struct aware_move *move)
{
    cr_assert_eq(pthread_join(move->thread, NULL), 0);
    return move->report.result;
}

enum move_result aware_program_move(struct aware_program *program, const char *target,
                                    enum move_manner manner, struct move_report *ret_report)
{
    struct aware_move move;
    aware_move_begin(program, &move, target, manner, 0);
    enum move_result result = aware_move_end(&move);
    if (ret_report)
        *ret_report = move.report;
    return result;
}

const char *aware_program_place(void)
{
    static struct vdev_status status;
    status_vdev(0, &status);
    return status.suspended ? "" : status.device.device;
}

cl_ulong aware_info(const struct aware_program *program, cl_device_info name)
{
    cl_ulong value = 0;
    OK(clGetDeviceInfo(program->rig.device, name, sizeof(value), &value, NULL));
    return value;
}

size_t aware_group(const struct aware_program *program)
{
    size_t sizes[3], group = 0;
    OK(clGetDeviceInfo(program->rig.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(group), &group,
                       NULL));
    OK(clGetDeviceInfo(program->rig.device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), sizes,
                       NULL));
    cr_assert_leq(sizes[0], group);
    return group;
}
