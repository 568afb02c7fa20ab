/* A program that knows reseat.h and nothing else of reseat; C11 and C++17. */
#include <reseat.h>
#include <stdio.h>

static int never(void *data, const struct reseat_change *change)
{
    (void)data;
    return change->reason == RESEAT_MOVE ? 1 : 2;
}

static void noted(void *data, const struct reseat_notice *notice)
{
    *(const char **)data = notice->text;
}

int main(void)
{
    const char *text = "";
    struct reseat_program program;
    struct reseat_device device;
    struct reseat_restored restored;
    memset(&program, 0, sizeof program);
    program.size = sizeof program;
    program.checkpoint = never;
    program.notify = noted;
    program.data = &text;
    program.minimum.features = RESEAT_FP64 | RESEAT_IMAGES;
    device.size = sizeof device;
    restored.size = sizeof restored;
    printf("%d ", reseat_register(&program));
    printf("%d ", reseat_register(&program));
    printf("%d ", reseat_wish(&program.minimum, NULL));
    printf("%d ", reseat_unregister());
    printf("%d ", reseat_unregister());
    printf("%d ", reseat_save(NULL, 0));
    printf("%d ", reseat_restored(&restored));
    printf("%d ", reseat_name(NULL, "name", NULL));
    printf("%d ", reseat_offer(NULL, NULL, NULL));
    printf("%d: ", reseat_current(NULL, &device));
    printf("%s\n", reseat_error_text(RESEAT_NOT_UNDER));
    return 0;
}
