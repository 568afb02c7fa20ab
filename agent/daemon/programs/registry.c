#include "agent/daemon/programs/registry.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/config/process.h"
#include "agent/daemon/agent_messages.h"
#include "agent/daemon/event_log.h"
#include "state/base/bytes/size.h"

#define PROGRAM_FILE_MAX (256u << 10)
#define LOST_MS          1000

bool program_set_vdev_count(struct agent *agent, struct program *program, size_t count)
{
    if (count > program->vdev_room) {
        struct program_device *vdevs = calloc(count, sizeof(*vdevs));
        if (!vdevs)
            return false;
        for (size_t i = 0; i < program->vdev_room; i++) {
            const struct program_device *from = &program->vdevs[i];
            vdevs[i] = *from;
            ledger_move(&from->entry, &vdevs[i].entry);
            for (size_t j = 0; j < PROGRAM_SOURCES_MAX; j++)
                ledger_move(&from->sources[j].entry, &vdevs[i].sources[j].entry);
        }
        for (size_t i = program->vdev_room; i < count; i++) {
            ledger_open(&agent->ledger, &vdevs[i].entry);
            for (size_t j = 0; j < PROGRAM_SOURCES_MAX; j++)
                ledger_open(&agent->ledger, &vdevs[i].sources[j].entry);
            vdevs[i].only = LEDGER_NONE;
        }
        free(program->vdevs);
        program->vdevs = vdevs;
        program->vdev_room = count;
    }
    program->vdev_count = count;
    return true;
}

bool program_open(struct agent *agent, struct program *program)
{
    program->policy.ways = (1u << POLICY_WAYS) - 1;
    program->policy.quota = LEDGER_NO_LIMIT;
    return program_set_vdev_count(agent, program, 1);
}

void program_close(struct agent *agent, struct program *program)
{
    agent->events->program_removed(agent, program);
    for (size_t i = 0; i < program->vdev_room; i++) {
        ledger_close(&agent->ledger, &program->vdevs[i].entry);
        for (size_t j = 0; j < PROGRAM_SOURCES_MAX; j++)
            ledger_close(&agent->ledger, &program->vdevs[i].sources[j].entry);
    }
    free(program->vdevs);
    program->vdevs = NULL;
    program->vdev_room = program->vdev_count = 0;
    free(program->managed.exclusions);
    free(program->whole);
    free(program->images);
    free(program->lease);
    agent->changed = true;
}

/** Remove the program from the list and free it. */
static void registry_program_destroy(struct agent *agent, struct program *program)
{
    program_close(agent, program);
    for (struct program **at = &agent->programs; *at; at = &(*at)->next) {
        if (*at == program) {
            *at = program->next;
            break;
        }
    }
    free(program->environment);
    free(program);
}

static struct program *registry_program_by_id(const struct agent *agent, const char *id)
{
    for (struct program *program = agent->programs; program; program = program->next)
        if (strcmp(program->id, id) == 0)
            return program;
    return NULL;
}

/**
 * True when the process of @peer is the program. The pid alone does not show that: it may have
 * belonged to another process when the peer connected, or to this process before it executed a
 * set-uid program. So the user must be the program's. If a program of root has since changed its
 * user, the connection must be younger than the program's entry.
 */
static bool registry_is_of(const struct peer *peer, const struct program *program)
{
    return peer->uid == program->uid || (program->uid == 0 && peer->number > program->after_peer);
}

static struct program *registry_program_of_process(const struct agent *agent,
                                                   const struct peer *peer, uint64_t start)
{
    for (struct program *program = agent->programs; program; program = program->next)
        if (program->pid == peer->pid && program->start == start && registry_is_of(peer, program))
            return program;
    return NULL;
}

static struct program *registry_program_create(struct agent *agent, pid_t pid, uint64_t start,
                                               uid_t uid)
{
    struct program *program = calloc(1, sizeof(*program));

    if (!program)
        return NULL;
    program->pid = pid;
    program->start = start;
    program->uid = uid;
    program->after_peer = agent->connected;
    if (!program_open(agent, program)) {
        free(program);
        return NULL;
    }
    program_set_user(agent, program, NULL);
    program->next = agent->programs;
    agent->programs = program;
    return program;
}

/** Ids have the form "a7", so that none is a pid. */
static void registry_give_id(struct agent *agent, struct program *program)
{
    do {
        snprintf(program->id, sizeof(program->id), "a%u", agent->next_program++);
    } while (registry_program_by_id(agent, program->id) != program);
}

static bool registry_valid_id(const char *id)
{
    size_t digits = strspn(id + (id[0] == 'a'), "0123456789");

    return id[0] == 'a' && digits >= 1 && digits <= 9 && id[1 + digits] == '\0';
}

static void registry_reserve_id(struct agent *agent, const char *id)
{
    unsigned long number = strtoul(id + 1, NULL, 10);

    if (number >= agent->next_program)
        agent->next_program = (unsigned)number + 1;
}

static void registry_set_name(struct program *program, const char *name, const char *fallback)
{
    snprintf(program->name, sizeof(program->name), "%s", name && *name ? name : fallback);
}

/* False: the record is of no use any more. One that could not be read may be the next time. */
static bool registry_load_one(struct agent *agent, const char *path)
{
    char *bytes = NULL, id[sizeof(((struct program *)0)->id)], name[64];
    size_t size;
    struct message message;
    struct frame_reader reader;
    bool alive = false;

    int error = paths_read(path, PROGRAM_FILE_MAX, &bytes, &size);
    if (error)
        return error != -EFBIG;
    frame_reader_init(&reader);
    int got = frame_reader_feed(&reader, bytes, size);
    got = got ? got : frame_reader_next(&reader, &message);
    frame_reader_finish(&reader);
    free(bytes);
    if (got != 1)
        return false;
    const msgpack_object *map = &message.root;
    uint64_t pid = field_u64(map, "pid", 0), start = field_u64(map, "start", 0);
    if (field_string(map, "id", id, sizeof(id)) && registry_valid_id(id) &&
        !registry_program_by_id(agent, id) && field_text(map, "name", name, sizeof(name)) &&
        pid > 0 && pid < INT32_MAX && process_alive((pid_t)pid, start)) {
        struct program *program = registry_program_create(agent, (pid_t)pid, start,
                                                          (uid_t)field_u64(map, "uid", UINT32_MAX));
        alive = true;
        if (program) {
            snprintf(program->id, sizeof(program->id), "%s", id);
            registry_set_name(program, name, id);
            program_take_saved(agent, program, map);
            program_take_moves(agent, program, map);
            program_configure(agent, program);
            program->lost_ms = uv_now(&agent->loop);
            registry_reserve_id(agent, id);
        }
    }
    message_finish(&message);
    return alive;
}

void programs_load(struct agent *agent)
{
    DIR *folder = opendir(agent->programs_folder);
    const struct dirent *entry;

    agent->next_program = 1;
    while (folder && (entry = readdir(folder))) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.' || paths_join(agent->programs_folder, entry->d_name, path))
            continue;
        if (!registry_load_one(agent, path))
            unlink(path);
    }
    if (folder)
        closedir(folder);
}

void programs_finish(struct agent *agent)
{
    while (agent->programs)
        registry_program_destroy(agent, agent->programs);
}

bool program_sweep(struct agent *agent, struct program *program)
{
    if (program->peer)
        return false;
    bool ended = !process_alive(program->pid, program->start);
    if (ended || (program->connected && uv_now(&agent->loop) - program->lost_ms > LOST_MS))
        agent->events->program_unreachable(agent, program, ended);
    if (ended) {
        char path[PATH_MAX];
        if (!program_file(agent, program, path))
            unlink(path);
        registry_program_destroy(agent, program);
    }
    return ended;
}

void programs_sweep(struct agent *agent)
{
    for (struct program *program = agent->programs, *next; program; program = next) {
        next = program->next;
        (void)program_sweep(agent, program);
    }
}

int programs_register(struct agent *agent, struct peer *peer, const char *name, bool named,
                      const struct inventory_entry *const *devices, size_t vdev_count,
                      const char *environment, struct program **ret_program)
{
    uint64_t start;
    int error = process_start_time(peer->pid, &start);

    if (error)
        return error;
    char *copy = strdup(environment);
    struct program *program = registry_program_of_process(agent, peer, start);
    if (copy && !program) {
        program = registry_program_create(agent, peer->pid, start, peer->uid);
        if (program)
            registry_give_id(agent, program);
    }
    if (!program || !copy || !program_set_vdev_count(agent, program, vdev_count)) {
        free(copy);
        return -ENOMEM;
    }
    free(program->environment);
    program->environment = copy;
    program->named = named;
    program_set_user(agent, program, peer);
    registry_set_name(program, name, program->id);
    program_named(agent, program);
    for (size_t i = 0; i < vdev_count; i++) {
        if (devices[i]) {
            program->vdevs[i].device = devices[i]->key;
            program->vdevs[i].has_device = true;
        }
    }
    programs_save(agent, program);
    *ret_program = program;
    return 0;
}

int programs_connect(struct agent *agent, struct peer *peer, const msgpack_object *hello,
                     bool *ret_first)
{
    struct program_hello said;
    uint64_t start;
    int error = process_start_time(peer->pid, &start);

    if (error)
        return error;
    take_hello(hello, &said);
    struct program *program = registry_program_of_process(agent, peer, start);
    if (!program) {
        /* A child of a known program, or a program that an earlier agent knew. */
        const struct program *known = registry_program_by_id(agent, said.id), *parent;
        char refused[PROTOCOL_TEXT_MAX];
        if (!programs_may_start(agent, peer, refused, sizeof(refused))) {
            agent_log("pid %d of user %u is not taken: %s", (int)peer->pid, (unsigned)peer->uid,
                      refused);
            return -EDQUOT;
        }
        program = registry_program_create(agent, peer->pid, start, peer->uid);
        if (!program)
            return -ENOMEM;
        parent = known && known->uid == program->uid ? known : NULL;
        if (!known && registry_valid_id(said.id)) {
            memcpy(program->id, said.id, sizeof(program->id));
            registry_reserve_id(agent, said.id);
        } else {
            registry_give_id(agent, program);
        }
        if (parent) {
            program->named = parent->named;
            program->environment = parent->environment ? strdup(parent->environment) : NULL;
            memcpy(program->inventory, parent->inventory, sizeof(program->inventory));
            program->policy = parent->policy;
            program->spread = parent->spread;
            if (!program_set_vdev_count(agent, program, parent->vdev_count)) {
                registry_program_destroy(agent, program);
                return -ENOMEM;
            }
            for (size_t i = 0; i < program->vdev_count; i++) {
                program->vdevs[i].has_device = parent->vdevs[i].has_device;
                program->vdevs[i].device = parent->vdevs[i].device;
            }
        }
        registry_set_name(program, parent && !parent->named ? said.program : said.name,
                          said.program[0] ? said.program : program->id);
        program->stranger = !parent;
        if (!parent)
            program_named(agent, program);
    }
    /* The program answers only over the connection on which a request was sent. */
    if (program->connected)
        agent->events->program_unreachable(agent, program, false);
    if (program->peer && program->peer != peer) {
        program->peer->program = NULL;
        peer_close(program->peer);
    }
    *ret_first = !program->connected;
    program->peer = peer;
    program->unresponsive = false;
    program->connected = true;
    program_reset_status(program);
    peer->program = program;
    program_set_user(agent, program, peer);
    take_wish(hello, &program->wish);
    programs_save(agent, program);
    event_log_program(agent, program, "connected", "");
    return 0;
}

void programs_disconnect(struct agent *agent, struct peer *peer)
{
    struct program *program = peer->program;

    peer->program = NULL;
    if (!program || program->peer != peer)
        return;
    program->peer = NULL;
    program->lost_ms = uv_now(&agent->loop);
    agent->events->program_lost(agent, program);
    event_log_program(agent, program, "disconnected", "");
    programs_sweep(agent);
}

/** Of several programs with one name, the only one that is connected; otherwise NULL. */
static struct program *registry_by_name(const struct agent *agent, const struct peer *peer,
                                        const char *name, bool connected, unsigned *ret_count)
{
    struct program *found = NULL;

    *ret_count = 0;
    for (struct program *program = agent->programs; program; program = program->next) {
        if (strcmp(program->name, name) == 0 && peer_sees(peer, program->uid) &&
            (!connected || program->peer)) {
            found = program;
            ++*ret_count;
        }
    }
    return found;
}

static void registry_candidates(const struct agent *agent, const struct peer *peer,
                                const char *name, char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (const struct program *program = agent->programs; program; program = program->next) {
        if ((name && strcmp(program->name, name)) || !peer_sees(peer, program->uid))
            continue;
        int length = snprintf(ret + used, size - used, "%s%s (%s, pid %d)", used ? ", " : "",
                              program->id, program->name, (int)program->pid);
        if (length < 0 || (size_t)length >= size - used)
            return;
        used += (size_t)length;
    }
}

static int registry_find(struct agent *agent, const struct peer *peer, const char *text,
                         struct program **ret_program, char *ret_error, size_t error_size)
{
    char list[512];
    uint64_t pid = 0;
    unsigned count;
    bool numbered = number_parse(text, INT32_MAX - 1, &pid) && pid > 0;

    for (struct program *program = agent->programs; program; program = program->next) {
        if (peer_sees(peer, program->uid) &&
            (strcmp(program->id, text) == 0 || (numbered && program->pid == (pid_t)pid))) {
            *ret_program = program;
            return 0;
        }
    }
    struct program *found = registry_by_name(agent, peer, text, true, &count);
    if (count == 0)
        found = registry_by_name(agent, peer, text, false, &count);
    if (count == 1) {
        *ret_program = found;
        return 0;
    }
    registry_candidates(agent, peer, count ? text : NULL, list, sizeof(list));
    if (count) {
        snprintf(ret_error, error_size, "program \"%s\" could be any of %s; use an id or a pid",
                 text, list);
        return -ENOTUNIQ;
    }
    snprintf(ret_error, error_size, "no program \"%s\" runs under reseat; %s%s", text,
             list[0] ? "there are " : "start one with reseat run", list);
    return -ESRCH;
}

/** Remove ":N" from the end of @text. False when there is none. */
static bool registry_cut_vdev(char *text, size_t *ret_vdev)
{
    char *colon = strrchr(text, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

    if (digits == 0 || digits > 4 || colon[1 + digits] || colon == text)
        return false;
    *ret_vdev = (size_t)strtoul(colon + 1, NULL, 10);
    *colon = '\0';
    return true;
}

int programs_find(struct agent *agent, const struct peer *peer, const char *text,
                  struct program **ret_program, size_t *ret_vdev, char *ret_error,
                  size_t error_size)
{
    char name[PROTOCOL_WORD_MAX];
    size_t vdev;

    programs_sweep(agent);
    int error = registry_find(agent, peer, text, ret_program, ret_error, error_size);
    *ret_vdev = PROGRAM_ALL_VDEVS;
    snprintf(name, sizeof(name), "%s", text);
    if (error != -ESRCH || !registry_cut_vdev(name, &vdev))
        return error;
    error = registry_find(agent, peer, name, ret_program, ret_error, error_size);
    if (error)
        return error;
    if (vdev >= (*ret_program)->vdev_count) {
        size_t count = (*ret_program)->vdev_count;
        if (count == 1)
            snprintf(ret_error, error_size, "%s (pid %d) has one virtual device (0)",
                     (*ret_program)->name, (int)(*ret_program)->pid);
        else
            snprintf(ret_error, error_size, "%s (pid %d) has %zu virtual devices (0 to %zu)",
                     (*ret_program)->name, (int)(*ret_program)->pid, count, count - 1);
        return -ENODEV;
    }
    *ret_vdev = vdev;
    return 0;
}
