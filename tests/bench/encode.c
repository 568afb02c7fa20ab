/*
 * A whole program: libx264 encodes a generated video, its lookahead on an OpenCL device. It ends
 * with an error where x264 goes on without one.
 *
 *   bench-encode FRAMES CLBIN > VIDEO.264
 *
 * CLBIN is where x264 keeps the binary of its kernels.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x264.h>

enum { WIDTH = 1280, HEIGHT = 720, BORDER = 256, STRIDE = WIDTH + BORDER };

static uint8_t texture[HEIGHT + BORDER][STRIDE];
static int has_device, has_failed;

__attribute__((format(printf, 3, 0))) static void on_log(void *data, int level, const char *format,
                                                         va_list words)
{
    (void)data;
    char text[1024];
    vsnprintf(text, sizeof(text), format, words);
    if (!strstr(text, "OpenCL"))
        return;
    has_device |= strstr(text, "acceleration enabled") != NULL;
    has_failed |= level <= X264_LOG_WARNING;
    fputs(text, stderr);
}

/* Blocks of several sizes, and grain. */
static void texture_make(void)
{
    uint32_t chance = 1;
    for (unsigned y = 0; y < HEIGHT + BORDER; y++)
        for (unsigned x = 0; x < STRIDE; x++) {
            chance = chance * 1664525 + 1013904223;
            texture[y][x] = (uint8_t)(64 + (x / 40 * 29 + y / 24 * 53) % 96 + (x / 7 + y / 5) % 16 +
                                      (chance >> 28));
        }
}

/* Goes to and fro over the texture. */
static unsigned place(unsigned frame, unsigned speed)
{
    unsigned at = frame * speed % (2 * BORDER);
    return at < BORDER ? at : 2 * BORDER - 1 - at;
}

static void frame_make(x264_picture_t *picture, unsigned frame)
{
    const uint8_t *from = &texture[place(frame, 3)][place(frame, 5)];
    for (unsigned y = 0; y < HEIGHT; y++)
        memcpy(picture->img.plane[0] + (size_t)y * (size_t)picture->img.i_stride[0],
               from + (size_t)y * STRIDE, WIDTH);
    picture->i_pts = frame;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench-encode: %s\n", what);
    exit(1);
}

/* @picture is NULL for what the encoder still holds back. */
static void encode(x264_t *encoder, x264_picture_t *picture)
{
    x264_nal_t *units;
    x264_picture_t out;
    int count, size = x264_encoder_encode(encoder, &units, &count, picture, &out);
    if (size < 0 ||
        (size > 0 && fwrite(units[0].p_payload, 1, (size_t)size, stdout) != (size_t)size))
        fail("a frame was not encoded or written");
}

int main(int argc, char **argv)
{
    x264_param_t param;
    x264_picture_t picture;
    unsigned long frames = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    if (frames < 1)
        fail("usage: bench-encode FRAMES CLBIN");
    if (x264_param_default_preset(&param, "medium", NULL) < 0)
        fail("there is no such preset");
    param.i_width = WIDTH;
    param.i_height = HEIGHT;
    param.i_fps_num = 25;
    param.b_opencl = 1;
    param.psz_clbin_file = argv[2];
    param.pf_log = on_log;
    param.i_log_level = X264_LOG_INFO;
    x264_t *encoder = x264_encoder_open(&param);
    if (!encoder || x264_picture_alloc(&picture, X264_CSP_I420, WIDTH, HEIGHT) < 0)
        fail("there is no encoder");
    texture_make();
    for (int i = 1; i < 3; i++)
        memset(picture.img.plane[i], 128, (size_t)picture.img.i_stride[i] * (HEIGHT / 2));
    for (unsigned frame = 0; frame < frames; frame++) {
        frame_make(&picture, frame);
        encode(encoder, &picture);
    }
    while (x264_encoder_delayed_frames(encoder) > 0)
        encode(encoder, NULL);
    x264_encoder_close(encoder);
    x264_picture_clean(&picture);
    return has_device && !has_failed && fflush(stdout) == 0 ? 0 : 1;
}
