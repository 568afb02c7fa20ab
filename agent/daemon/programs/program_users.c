#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "state/base/files/access.h"

/* What the configuration lets one user have, and the users of one of its entries together. */

static struct config_user program_users_of(const struct agent *agent, uid_t uid,
                                           const struct peer *peer)
{
    struct config_user said;

    config_user(&agent->config, uid, peer ? peer->groups : NULL, peer ? peer->group_count : 0,
                &said);
    if (access_may_manage(geteuid(), uid))
        said.memory = said.programs = said.all_memory = said.all_programs = CONFIG_UNLIMITED;
    return said;
}

void program_set_user(const struct agent *agent, struct program *program, const struct peer *peer)
{
    program->user = program_users_of(agent, program->uid, peer);
}

bool programs_may_start(struct agent *agent, const struct peer *peer, char *ret_error, size_t size)
{
    struct config_user said = program_users_of(agent, peer->uid, peer);
    uint64_t own = 0, all = 0;

    programs_sweep(agent);
    for (const struct program *program = agent->programs; program; program = program->next) {
        own += program->uid == peer->uid;
        all += program->user.entry == said.entry;
    }
    if (own < said.programs && all < said.all_programs)
        return true;
    bool alone = own >= said.programs;
    snprintf(ret_error, size, "%s %llu programs under reseat, as many as the configuration allows",
             alone ? "this user has" : "the users of its group have",
             (unsigned long long)(alone ? own : all));
    return false;
}

uint64_t program_user_left(const struct agent *agent, const struct program *program)
{
    const struct config_user *said = &program->user;
    uint64_t own = 0, all = 0;

    if (said->memory == CONFIG_UNLIMITED && said->all_memory == CONFIG_UNLIMITED)
        return LEDGER_NO_LIMIT;
    for (const struct program *other = agent->programs; other; other = other->next) {
        for (size_t i = 0; other != program && i < other->vdev_count; i++) {
            uint64_t bytes = ledger_reserved(&other->vdevs[i].entry);
            own += other->uid == program->uid ? bytes : 0;
            all += other->user.entry == said->entry ? bytes : 0;
        }
    }
    uint64_t left = said->memory > own ? said->memory - own : 0;
    uint64_t all_left = said->all_memory > all ? said->all_memory - all : 0;
    return left < all_left ? left : all_left;
}
