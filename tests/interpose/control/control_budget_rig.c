#include "tests/interpose/control/control_budget_rig.h"

#include "agent/protocol/program_messages.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

#define SECOND_NS   1000000000ull
#define THREADS_MAX 8

/* ---- the clock ---- */

_Atomic uint64_t budget_clock_ns = 100 * SECOND_NS;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    uint64_t now = atomic_load(&budget_clock_ns);
    (void)clock;
    *ret_now = (struct timespec){(time_t)(now / SECOND_NS), (long)(now % SECOND_NS)};
    return 0;
}

/* ---- the engine ---- */

enum budget_answer (*budget_policy)(const struct budget_need *need);
struct budget_vdev budget_vdevs[PROTOCOL_VDEVS_MAX];
unsigned budget_grants, budget_slack_looks;
bool budget_spill_blocks, budget_read_blocks;
sem_t budget_spilling, budget_may_spill, budget_reading;

void budget_set_policy(enum budget_answer (*decide)(const struct budget_need *need))
{
    budget_policy = decide;
}

void budget_grant(uint32_t vdev, uint64_t bytes)
{
    cr_assert_lt(vdev, PROTOCOL_VDEVS_MAX);
    budget_vdevs[vdev].granted += bytes;
    budget_vdevs[vdev].limited = true;
    budget_grants++;
}

uint64_t budget_shrink(uint32_t vdev, uint64_t bytes)
{
    cr_assert_lt(vdev, PROTOCOL_VDEVS_MAX);
    if (budget_spill_blocks) {
        sem_post(&budget_spilling);
        sem_wait(&budget_may_spill);
    }
    uint64_t granted = budget_vdevs[vdev].granted, gone = granted > bytes ? granted - bytes : 0;
    budget_vdevs[vdev].granted -= gone;
    return gone;
}

uint64_t budget_slack(uint32_t vdev)
{
    cr_assert_lt(vdev, PROTOCOL_VDEVS_MAX);
    uint64_t bytes = budget_vdevs[vdev].slack;
    budget_vdevs[vdev].slack = 0;
    budget_slack_looks++;
    return bytes;
}

void budget_read(uint32_t vdev, struct budget_use *ret_use)
{
    cr_assert_lt(vdev, PROTOCOL_VDEVS_MAX);
    if (budget_read_blocks) {
        sem_post(&budget_reading);
        for (;;)
            pause();
    }
    *ret_use = (struct budget_use){.granted = budget_vdevs[vdev].granted,
                                   .limited = budget_vdevs[vdev].limited};
}

/* ---- threads ---- */

bool budget_no_threads;
unsigned budget_threads;
sem_t budget_woken;
void (*budget_on_wake)(void);
static pthread_t threads[THREADS_MAX];

int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                 pthread_t *ret_thread)
{
    (void)name, (void)stack, (void)ret_thread;
    if (budget_no_threads)
        return -EAGAIN;
    cr_assert_lt(budget_threads, THREADS_MAX);
    cr_assert_eq(pthread_create(&threads[budget_threads++], NULL, run, data), 0);
    return 0;
}

static void wake(void)
{
    if (budget_on_wake)
        budget_on_wake();
    sem_post(&budget_woken);
}

static void *ask_main(void *data)
{
    struct asker *asker = data;
    asker->answer = budget_policy(&asker->need);
    return NULL;
}

void ask(struct asker *asker, const struct budget_need *need)
{
    *asker = (struct asker){.need = *need};
    cr_assert_eq(pthread_create(&asker->thread, NULL, ask_main, asker), 0);
    sem_wait(&budget_woken);
}

uint64_t asked(struct asker *asker, const struct budget_need *need)
{
    ask(asker, need);
    cr_assert_eq(serve(), 1);
    cr_assert_str_eq(sent[0].type, MSG_NEED);
    return sent[0].id;
}

enum budget_answer answer_of(struct asker *asker)
{
    pthread_join(asker->thread, NULL);
    return asker->answer;
}

/* ---- the agent ---- */

struct sent sent[SENT_MAX];
unsigned sent_count;
bool sent_breaks;
bool budget_served;

/* What @frame says, to be given to message_finish(). Finishes it. */
static void deliver(struct frame *frame, struct message *ret_message)
{
    cr_assert_eq(frame_seal(frame), 0);
    cr_assert_eq(message_decode((uint8_t *)frame->buffer.data + sizeof(uint32_t),
                                frame->buffer.size - sizeof(uint32_t), ret_message),
                 0);
    frame_finish(frame);
}

static void hear(void *data, struct frame *frame)
{
    struct message message;
    cr_assert_eq(data, sent);
    cr_assert_lt(sent_count, SENT_MAX);
    deliver(frame, &message);
    const msgpack_object *map = &message.root;
    struct sent *one = &sent[sent_count++];
    *one = (struct sent){.fields = map->via.map.size,
                         .id = field_u64(map, "id", UINT64_MAX),
                         .vdev = field_u64(map, "vdev", UINT64_MAX),
                         .bytes = field_u64(map, "bytes", UINT64_MAX),
                         .total = field_u64(map, "total", UINT64_MAX),
                         .least = field_u64(map, "least", UINT64_MAX),
                         .wanted = field_u64(map, "wanted", UINT64_MAX),
                         .owns = field_bool(map, "owns", false),
                         .failed = field_bool(map, "failed", false)};
    cr_assert(field_string(map, "type", one->type, sizeof(one->type)));
    message_finish(&message);
    if (sent_breaks)
        control_budget_alone();
}

bool budget_waits;

unsigned serve(void)
{
    sent_count = 0;
    budget_served = control_budget_serve(budget_waits, sent, hear);
    return sent_count;
}

void take(struct frame *frame)
{
    struct message message;
    deliver(frame, &message);
    if (field_is(&message.root, "type", MSG_ANSWER))
        control_budget_answer(&message.root);
    else if (field_is(&message.root, "type", MSG_GRANT))
        control_budget_granted(&message.root);
    else if (field_is(&message.root, "type", MSG_SHRINK))
        control_budget_shrink(&message.root);
    message_finish(&message);
}

void rig_welcome(struct frame *frame)
{
    struct message message;
    struct control_welcome welcome;
    deliver(frame, &message);
    take_welcome(&message.root, &welcome);
    control_budget_connected(&welcome);
    message_finish(&message);
}

void welcome(const uint64_t *initial, size_t count)
{
    struct frame frame;
    frame_init(&frame, MSG_WELCOME);
    frame_array(&frame, "grants");
    for (size_t i = 0; i < count; i++)
        frame_u64(&frame, NULL, initial[i]);
    frame_end(&frame);
    rig_welcome(&frame);
}

void answer(uint64_t id, const char *way)
{
    struct frame frame;
    frame_init(&frame, MSG_ANSWER);
    frame_u64(&frame, "id", id);
    if (way)
        frame_string(&frame, "way", way);
    frame_string(&frame, "reason", "a test says so");
    take(&frame);
}

void tell(const char *type, uint64_t vdev, uint64_t bytes)
{
    struct frame frame;
    frame_init(&frame, type);
    frame_u64(&frame, "vdev", vdev);
    frame_u64(&frame, "bytes", bytes);
    take(&frame);
}

void shrink(uint64_t vdev, uint64_t bytes)
{
    tell(MSG_SHRINK, vdev, bytes);
    sem_wait(&budget_woken);
}

void expect_need(uint64_t id, const struct budget_need *need)
{
    cr_assert_eq(serve(), 1);
    cr_assert_str_eq(sent[0].type, MSG_NEED);
    cr_assert_eq(sent[0].id, id);
    cr_assert_eq(sent[0].vdev, need->vdev);
    cr_assert_eq(sent[0].total, need->total);
    cr_assert_eq(sent[0].least, need->least);
    cr_assert_eq(sent[0].wanted, need->wanted);
    cr_assert_eq(sent[0].owns, need->owns);
    cr_assert_eq(sent[0].failed, need->failed);
    cr_assert_eq(sent[0].fields, 8);
}

void expect_return(unsigned index, uint64_t vdev, uint64_t bytes)
{
    cr_assert_lt(index, sent_count);
    cr_assert_str_eq(sent[index].type, MSG_RETURN);
    cr_assert_eq(sent[index].vdev, vdev);
    cr_assert_eq(sent[index].bytes, bytes);
    cr_assert_eq(sent[index].fields, 3);
}

void budget_rig_begin(void)
{
    sem_init(&budget_woken, 0, 0);
    sem_init(&budget_spilling, 0, 0);
    sem_init(&budget_may_spill, 0, 0);
    sem_init(&budget_reading, 0, 0);
    cr_assert_eq(fork_watch(), 0);
    control_budget_start(wake);
}

void budget_rig_finish(void)
{
    for (unsigned i = 0; i < budget_threads; i++)
        pthread_join(threads[i], NULL);
}

void welcome_of_one_that_answers(void)
{
    struct frame frame;
    frame_init(&frame, MSG_WELCOME);
    frame_bool(&frame, "alive", true);
    rig_welcome(&frame);
}
