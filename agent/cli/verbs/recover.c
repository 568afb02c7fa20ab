#include "agent/cli/recover/lost.h"
#include "agent/cli/verb.h"
#include "state/base/clock.h"

/*
 * Restart programs of a lost host from their images, each once, on whichever host runs this
 * command: when it is called, or with --watch whenever a host falls silent.
 */

#define LOOK_NS (50 * NS_PER_MS)

/** Wait: a program is lost after 1.25 times its lease without renewal, by our clock. */
static void recover_await_silence(struct losses *losses)
{
    for (bool waits = true; waits;) {
        waits = false;
        for (size_t i = 0; i < losses->count; i++) {
            struct lost *lost = &losses->lost[i];
            if (lost->outcome == UNKNOWN)
                lost_look_at(losses, lost);
            waits = waits || lost->outcome == UNKNOWN;
        }
        if (waits)
            clock_sleep(LOOK_NS);
    }
}

/* ---- output ---- */

static int recover_print(const struct losses *losses)
{
    static const struct table_column columns[] = {
        {"PROGRAM", "{program}"},
        {"IMAGE", "{image}"},
        {"HOST", "{host}"},
        {"OUTCOME", "{outcome}"},
        {"PID", "{pid}", TABLE_RIGHT},
        {"WHY", "{reason}", TABLE_WRAP},
        {NULL},
    };
    json_t *list = json_array();
    bool failed = false;

    for (size_t i = 0; i < losses->count; i++) {
        failed = failed || losses->lost[i].outcome == CANNOT;
        json_array_append_new(list, lost_describe(&losses->lost[i]));
    }
    json_auto_t *answer =
        json_pack("{s:o, s:o}", "folder", output_text(losses->path), "programs", list);
    return output_list(losses->output, answer, "programs", columns, failed ? ERR_FAILED : NULL,
                       "not all can be recovered");
}

/* Keep the programs of the host that was asked for, and see what became of each. */
static int recover_choose(struct losses *losses)
{
    const char *from = losses->wanted->from;
    size_t kept = 0;

    for (size_t i = 0; i < losses->count; i++) {
        struct lost *lost = &losses->lost[i];
        lost_look_at(losses, lost);
        if (!from || strcmp(lost->summary.about->host, from) == 0 ||
            strcmp(lost->seen.lease.holder.host, from) == 0)
            losses->lost[kept++] = *lost;
        else
            image_summary_finish(&lost->summary);
    }
    losses->count = kept;
    return kept ? 0
                : output_fail(losses->output, ERR_NO_APP, "%s: there is no image of a program%s%s",
                              losses->path, from ? " on " : "", from ? from : "");
}

static int recover_run(struct call *call)
{
    struct losses losses = {
        .output = &call->output, .wanted = call->options, .well_ns = clock_now_ns()};
    const struct recover *wanted = losses.wanted;
    char folder[PATH_MAX];
    struct images images;

    if (wanted->watch && (wanted->from || wanted->dry_run))
        return output_usage(&call->output, "--watch takes no --from and no --dry-run");
    if (!wanted->watch && !wanted->dry_run && !wanted->from)
        return output_usage(&call->output, "--from HOST is needed");
    int status = images_name_folder(&call->output, call->words[0], folder);
    if (!status && wanted->watch)
        watch_run(&call->output, wanted, folder);
    if (!status)
        status = images_open(&call->output, folder, IMAGE_TO_READ, &images);
    if (status)
        return status;
    status = losses_collect(&losses, &images);
    images_close(&images);
    if (!status)
        status = recover_choose(&losses);
    if (!status) {
        recover_await_silence(&losses);
        for (size_t i = 0; i < losses.count && !wanted->dry_run; i++)
            if (losses.lost[i].outcome == LOST)
                lost_start(&losses, &losses.lost[i]);
        status = recover_print(&losses);
    }
    losses_finish(&losses);
    return status;
}

static const struct option_row options[] = {
    {"from", "HOST", "The host that is gone (host in reseat image list --json).",
     OPTION_VALUE(struct recover, from)},
    {"watch", NULL,
     "Run until it is ended. Send heartbeats of this host to FOLDER, and recover the programs of "
     "hosts whose heartbeats stop.",
     OPTION_VALUE(struct recover, watch)},
    {"lease", "TIME",
     "With --watch: how long this host may be silent before others recover its programs. Default: "
     "10.",
     OPTION_SECONDS(struct recover, lease_ms, 3, LEASE_LEAST_MS, LEASE_MOST_MS), .initial = 10000},
    {"device", "DEVICE", "Where they start. Default: as reseat run chooses.",
     OPTION_VALUE(struct recover, device)},
    {"dry-run", NULL,
     "List the programs that are lost, and start none. Without --from: of all hosts.",
     OPTION_VALUE(struct recover, dry_run)},
    {"timeout", "TIME", "End a program that has not loaded its progress by then. Default: 120.",
     OPTION_SECONDS(struct recover, timeout_ms, 3, 1, 3600000), .initial = 120000},
    {NULL}};

const struct verb verb_recover = {
    .name = "recover",
    .arguments = "FOLDER",
    .summary = "Restart the programs of a host that is gone on this one.",
    .text = "FOLDER has their images (reseat checkpoint --lease), on a disk that both hosts can "
            "reach. The command first waits as long as their leases last: a program whose lease is "
            "renewed lives and is left alone, as is one that ended by exit(). Each lost program is "
            "started from its last image once, however many hosts try, with its arguments, in its "
            "working folder, on this command's standard output.",
    .members = "folder programs",
    .options = options,
    .size = sizeof(struct recover),
    .run = recover_run,
};
