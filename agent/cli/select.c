#include "agent/cli/select.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/client.h"

int select_take(struct call *call, const struct option_row *option, const char *text)
{
    struct view *view = &call->output.view;

    if (strcmp(option->name, "user") == 0)
        view->of_user = true;
    else if (strcmp(option->name, "device") == 0)
        view->device = text;
    else if (strcmp(option->name, "name") == 0)
        view->name = text;
    else
        view->all = true;
    return view->of_user && strcmp(option->name, "user") == 0
               ? ask_user_id(&call->output, text, &view->user)
               : 0;
}

bool select_given(const struct output *output)
{
    const struct view *view = &output->view;

    return view->all || view->of_user || view->device || view->name;
}

static bool select_is_on(const json_t *app, const char *device)
{
    const json_t *vdev;
    size_t i;

    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        if (!member_bool(vdev, "suspended") && strcmp(member_text(vdev, "device"), device) == 0)
            return true;
    }
    return false;
}

bool select_matches(const struct output *output, const json_t *app)
{
    const struct view *view = &output->view;

    return (!view->of_user || member_number(app, "uid") == view->user) &&
           (!view->device || select_is_on(app, view->device)) &&
           (!view->name || fnmatch(view->name, member_text(app, "name"), 0) == 0);
}

json_t *select_apps(const json_t *answer)
{
    const json_t *newest_first = json_object_get(answer, "apps");
    json_t *apps = json_array();

    for (size_t i = json_array_size(newest_first); i-- > 0;)
        json_array_append(apps, json_array_get(newest_first, i));
    return apps;
}

int select_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_APPS, .what = "list programs", .lists = true};
    json_auto_t *answer = NULL;
    void *options = malloc(call->verb->size + 1);
    char id[PROTOCOL_WORD_MAX];
    struct frame frame;
    size_t tried = 0;

    if (!options)
        return output_fail(&call->output, ERR_FAILED, "there is not enough memory");
    memcpy(options, call->options, call->verb->size);
    frame_init(&frame, MSG_APPS);
    int status = ask(&call->output, &question, &frame, &answer), first = status;
    json_auto_t *apps = select_apps(answer);
    const json_t *app;
    size_t i;
    json_array_foreach(apps, i, app)
    {
        if (!select_matches(&call->output, app))
            continue;
        snprintf(id, sizeof(id), "%s", member_text(app, "id"));
        call->words[0] = id;
        memcpy(call->options, options, call->verb->size); /* The verb may have changed them. */
        status = call->verb->run(call);
        first = first ? first : status;
        tried++;
    }
    free(options);
    return first || tried
               ? first
               : output_fail(&call->output, ERR_NO_APP, "no program is selected (reseat ps)");
}
