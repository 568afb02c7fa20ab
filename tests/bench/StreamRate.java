import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import reseat.stream.Accelerator;
import reseat.stream.Codec;
import reseat.stream.Reseat;

/**
 * What `bench-stream KERNEL FOLDER pipelined N SECONDS` (stream.c) does, from Java: StreamRate KERNEL FOLDER MODE N SECONDS.
 *
 * <p>MODE is pipelined (two threads pack and unpack by hand) or map (one thread, by a codec). Prints JSON.
 */
public final class StreamRate {
    private final byte[] records;
    private final ByteBuffer answers;
    private final int input;
    private final int output;
    private final int count;
    private final Accelerator a;
    private final long nanos;
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong taken = new AtomicLong();
    private final AtomicBoolean over = new AtomicBoolean();

    private StreamRate(Accelerator a, Path folder, double seconds) throws IOException {
        this.a = a;
        records = Files.readAllBytes(folder.resolve("records"));
        answers = ByteBuffer.wrap(Files.readAllBytes(folder.resolve("answers"))).order(ByteOrder.LITTLE_ENDIAN);
        input = a.inputSize();
        output = a.outputSize();
        count = records.length / input;
        nanos = (long) (seconds * 1e9);
    }

    private void compare(ByteBuffer some, int index) {
        if (some.mismatch(answers.limit(index * output + some.remaining()).position(index * output)) >= 0)
            throw new IllegalStateException("an answer is wrong");
    }

    /** Packs at most @flight records ahead of what is taken. */
    private void send(long flight) {
        int next = 0;
        while (!over.get()) {
            long room = flight - (sent.get() - taken.get());
            if (room <= 0) {
                LockSupport.parkNanos(50_000);
                continue;
            }
            ByteBuffer slots = a.slots();
            int fit = (int) Math.min(room, slots.remaining() / input);
            for (int i = 0, together; i < fit; i += together) {
                together = Math.min(fit - i, count - next);
                slots.put(records, next * input, together * input);
                next = (next + together) % count;
            }
            sent.addAndGet(fit);
            a.send(fit);
        }
    }

    private double pipelined(long flight) {
        Thread sender = new Thread(() -> send(flight));
        sender.setDaemon(true);
        sender.start();
        long begin = System.nanoTime();
        long warm = 0;
        long before = 0;
        int next = 0;
        for (;;) {
            ByteBuffer come = a.answers();
            int got = come.remaining() / output;
            for (int i = 0, together; i < got; i += together) {
                together = Math.min(got - i, count - next);
                compare(come.limit((i + together) * output).position(i * output), next);
                next = (next + together) % count;
            }
            taken.addAndGet(got);
            a.release(got);
            long now = System.nanoTime();
            if (warm == 0 && now - begin > nanos / 5) {
                warm = now;
                before = taken.get();
            }
            if (warm != 0 && now - warm > nanos) {
                over.set(true);
                return (taken.get() - before) / ((now - warm) / 1e9);
            }
        }
    }

    private double map() {
        Codec<Integer, Integer> codec = new Codec<>() {
            private int next;

            @Override
            public void pack(Integer index, ByteBuffer slot) {
                slot.put(records, index * input, input);
            }

            @Override
            public Integer unpack(ByteBuffer answer) {
                compare(answer, next);
                next = next + 1 == count ? 0 : next + 1;
                return next;
            }
        };
        Iterator<Integer> all = a.map(Stream.iterate(0, i -> i + 1 == count ? 0 : i + 1).iterator(), codec);
        long begin = System.nanoTime();
        long warm = 0;
        for (long done = 0;; done++) {
            all.next();
            if (done % 1024 != 0)
                continue;
            long now = System.nanoTime();
            if (warm == 0 && now - begin > nanos / 5) {
                warm = now;
                done = 0;
            }
            if (warm != 0 && now - warm > nanos)
                return done / ((now - warm) / 1e9);
        }
    }

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[1]);
        Reseat.Builder builder = Reseat.kernel(arguments[0]);
        String prefix = "constant-";
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.filter(f -> f.getFileName().toString().startsWith(prefix)).toList())
                builder.constant(file.getFileName().toString().substring(prefix.length()), Files.readAllBytes(file));
        }
        try (Accelerator a = builder.open()) {
            StreamRate rate = new StreamRate(a, folder, Double.parseDouble(arguments[4]));
            double found = arguments[2].equals("map") ? rate.map() : rate.pipelined(Long.parseLong(arguments[3]));
            System.out.printf("{\"mode\": \"%s\", \"rate\": %.1f}%n", arguments[2], found);
        }
    }
}
