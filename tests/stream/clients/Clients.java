import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;
import reseat.stream.Accelerator;
import reseat.stream.Codec;
import reseat.stream.Reseat;
import reseat.stream.ReseatException;

/**
 * What the tests run in a virtual machine: Clients CASE [COUNT]. Answers are compared with the JDK's own AES, or with an
 * exclusive or where the kernel is the double's. Prints "ok" and what a test needs, or ends with an exception.
 */
public final class Clients {
    private static final String KERNEL = System.getProperty("kernel", "aes");
    private static final byte[] KEY = "0123456789abcdef".getBytes();
    private static final int SIZE = 16;

    private Clients() {
    }

    private static void check(boolean right, Object what) {
        if (!right)
            throw new AssertionError(what);
    }

    /** Record @index: it differs from all others, and looks random. */
    private static byte[] record(long index) {
        return ByteBuffer.allocate(SIZE).putLong(index).putLong(index * 0x9E3779B97F4A7C15L).array();
    }

    private static byte[] records(long first, int count) {
        ByteBuffer all = ByteBuffer.allocate(count * SIZE);
        for (int i = 0; i < count; i++)
            all.put(record(first + i));
        return all.array();
    }

    /** What the kernel should make of records. */
    private static byte[] expected(byte[] records) {
        if (KERNEL.equals("xor")) {
            byte[] answers = records.clone();
            for (int i = 0; i < answers.length; i++)
                answers[i] ^= KEY[i % SIZE];
            return answers;
        }
        try {
            Cipher cipher = Cipher.getInstance("AES/ECB/NoPadding");
            cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(KEY, "AES"));
            return cipher.doFinal(records);
        } catch (GeneralSecurityException e) {
            throw new AssertionError(e);
        }
    }

    private static Reseat.Builder builder() {
        return Reseat.kernel(KERNEL).constant("", KEY).sharedMemory(!Boolean.getBoolean("sockets"))
                .reconnect(Duration.ofMillis(Long.getLong("reconnect", 10_000)));
    }

    private static ReseatException refused(Runnable work, ReseatException.Reason reason) {
        try {
            work.run();
        } catch (ReseatException e) {
            check(e.reason() == reason, e);
            return e;
        }
        throw new AssertionError("nothing was thrown in place of " + reason);
    }

    private static void illegal(Runnable work) {
        try {
            work.run();
        } catch (IllegalArgumentException | IllegalStateException e) {
            check(e.getMessage() != null, "no sentence");
            return;
        }
        throw new AssertionError("nothing was thrown");
    }

    /** Indices to answers, each of which is compared as it is unpacked. */
    private static final class Compared implements Codec<Long, Long> {
        private long next;

        @Override
        public void pack(Long index, ByteBuffer slot) {
            slot.put(record(index));
        }

        @Override
        public Long unpack(ByteBuffer answer) {
            check(answer.remaining() == SIZE && answer.isReadOnly(), answer);
            byte[] bytes = new byte[SIZE];
            answer.get(bytes);
            check(Arrays.equals(bytes, expected(record(next))), "answer " + next);
            return next++;
        }
    }

    private static Iterator<Long> indices(long count) {
        return IntStream.range(0, (int) count).mapToLong(i -> i).iterator();
    }

    private static void progress(long done) {
        System.out.println("done " + done);
        System.out.flush();
    }

    /* ---- the cases ---- */

    /** In order, each once, with garbage made and collected all the time. */
    private static void map(long count) {
        try (Accelerator a = builder().open()) {
            System.out.println("program " + a.program() + " shared " + a.isShared());
            long next = 0;
            for (Iterator<Long> answers = a.map(indices(count), new Compared()); answers.hasNext();) {
                check(answers.next() == next++, "order");
                if (next % 4096 == 0)
                    System.gc();
                if (next % 256 == 0)
                    progress(next);
            }
            check(next == count, next);
        }
    }

    /** As map(), at the pace of a slow program, until it is killed or its input ends. */
    private static void slow(long count) throws InterruptedException {
        try (Accelerator a = builder().open()) {
            System.out.println("program " + a.program() + " shared " + a.isShared());
            byte[] batch = records(0, 512);
            byte[] wanted = expected(batch);
            for (long i = 0; i < count; i++) {
                check(Arrays.equals(a.run(batch), wanted), "batch " + i);
                progress(i);
                Thread.sleep(5);
            }
        }
    }

    /** Every way to use a stream, on one stream. */
    private static void ways(long count) throws Exception {
        int some = (int) count;
        byte[] in = records(0, some);
        byte[] out = expected(in);
        try (Accelerator a = builder().open()) {
            check(a.inputSize() == SIZE && a.outputSize() == SIZE && a.capacity() > 0, "sizes");
            check(Arrays.equals(a.run(in), out), "arrays");
            check(Arrays.equals(a.apply(in), out), "function");
            check(a.run(new byte[0]).length == 0, "none");

            ByteBuffer records = ByteBuffer.allocateDirect(in.length + 3).position(3).put(in).flip().position(3);
            ByteBuffer answers = ByteBuffer.allocateDirect(in.length + 7).position(5);
            a.run(records, answers);
            check(!records.hasRemaining() && answers.position() == 5 + in.length, "positions");
            byte[] came = new byte[in.length];
            answers.flip().position(5).get(came);
            check(Arrays.equals(came, out), "buffers");

            List<byte[]> list = new ArrayList<>();
            for (int i = 0; i < some; i++)
                list.add(record(i));
            List<byte[]> mapped = a.map(list.stream(), Codec.bytes()).toList();
            check(mapped.size() == some, mapped.size());
            for (int i = 0; i < some; i++)
                check(Arrays.equals(mapped.get(i), Arrays.copyOfRange(out, i * SIZE, (i + 1) * SIZE)), i);
            int twice = 0;
            Iterable<byte[]> again = a.map(list, Codec.<byte[]>bytes());
            for (int round = 0; round < 2; round++)
                for (byte[] answer : again)
                    check(Arrays.equals(answer, mapped.get(twice++ % some)), twice);
            check(twice == 2 * some, twice);

            // An iteration that is left is discarded, and says so.
            Iterator<byte[]> left = a.map(list.iterator());
            check(Arrays.equals(left.next(), mapped.get(0)), "left");
            check(Arrays.equals(a.run(in), out), "after an iteration that was left");
            illegal(left::next);

            byHand(a, some, out);
            flow(a, some);
            check(Arrays.equals(a.run(in), out), "after a processor");

            // Many threads take turns.
            List<Thread> threads = new ArrayList<>();
            AtomicLong right = new AtomicLong();
            for (int t = 0; t < 4; t++) {
                threads.add(new Thread(() -> {
                    if (Arrays.equals(a.run(in), out))
                        right.incrementAndGet();
                }));
                threads.get(t).start();
            }
            for (Thread thread : threads)
                thread.join();
            check(right.get() == 4, right);
        }
    }

    /** One thread packs into the ring itself, another one reads from it. */
    private static void byHand(Accelerator a, int count, byte[] out) throws Exception {
        Thread packer = new Thread(() -> {
            for (int next = 0; next < count;) {
                ByteBuffer slots = a.slots();
                int fits = Math.min(count - next, slots.remaining() / SIZE);
                slots.put(records(next, fits));
                a.send(fits);
                next += fits;
            }
        });
        packer.start();
        for (int next = 0; next < count;) {
            ByteBuffer answers = a.answers();
            int come = answers.remaining() / SIZE;
            byte[] bytes = new byte[come * SIZE];
            answers.get(bytes);
            check(Arrays.equals(bytes, Arrays.copyOfRange(out, next * SIZE, (next + come) * SIZE)), next);
            a.release(come);
            next += come;
        }
        packer.join();
        illegal(() -> a.release(1));
        illegal(() -> a.send(1));
        ByteBuffer slots = a.slots();
        slots.put(record(0));
        a.send(1);
        illegal(() -> a.run(record(1))); // The answer to what was sent would be lost.
        a.answers();
        a.release(1);
    }

    /** A subscriber that asks for few: the publisher is asked for no more than there is room for. */
    private static void flow(Accelerator a, int count) throws Exception {
        AtomicLong published = new AtomicLong();
        AtomicLong seen = new AtomicLong();
        AtomicLong most = new AtomicLong();
        CompletableFuture<Long> end = new CompletableFuture<>();
        Flow.Processor<Long, Long> processor = a.processor(new Compared());
        illegal(() -> {
            processor.onSubscribe(new Flow.Subscription() {
                private long next;

                @Override
                public void request(long more) {
                    for (; more > 0 && next < count; more--) {
                        most.accumulateAndGet(published.incrementAndGet() - seen.get(), Math::max);
                        processor.onNext(next++);
                        if (next == count)
                            processor.onComplete();
                    }
                }

                @Override
                public void cancel() {
                }
            });
            a.run(record(0)); // The processor uses the stream.
        });
        processor.subscribe(new Flow.Subscriber<>() {
            private Flow.Subscription from;

            @Override
            public void onSubscribe(Flow.Subscription subscription) {
                from = subscription;
                from.request(3);
            }

            @Override
            public void onNext(Long index) {
                check(index == seen.getAndIncrement(), index);
                if (index % 3 == 2)
                    from.request(3);
            }

            @Override
            public void onError(Throwable thrown) {
                end.completeExceptionally(thrown);
            }

            @Override
            public void onComplete() {
                end.complete(seen.get());
            }
        });
        check(end.get(60, TimeUnit.SECONDS) == count, "all");
        check(most.get() <= a.capacity() + 1, most + " ahead, of " + a.capacity());
    }

    /** A subscriber that asks for nothing gets nothing, and the publisher is held back; one that cancels ends it. */
    private static void pressure() throws Exception {
        try (Accelerator a = builder().open();
                SubmissionPublisher<Long> publisher = new SubmissionPublisher<>(Runnable::run, 1 << 20)) {
            Flow.Processor<Long, Long> processor = a.processor(new Compared());
            publisher.subscribe(processor);
            AtomicLong seen = new AtomicLong();
            CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();
            CompletableFuture<Throwable> error = new CompletableFuture<>();
            processor.subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription from) {
                    subscription.complete(from);
                }

                @Override
                public void onNext(Long index) {
                    seen.incrementAndGet();
                }

                @Override
                public void onError(Throwable thrown) {
                    error.complete(thrown);
                }

                @Override
                public void onComplete() {
                }
            });
            Flow.Subscription from = subscription.get(10, TimeUnit.SECONDS);
            int all = Math.min(1 << 19, 3 * a.capacity());
            for (long i = 0; i < all; i++)
                publisher.submit(i);
            Thread.sleep(200);
            check(seen.get() == 0, "answers that nobody asked for");
            check(publisher.estimateMaximumLag() >= Math.max(0, all - a.capacity() - 1), "the publisher was not held back");
            from.request(5);
            for (int i = 0; i < 1000 && seen.get() < 5; i++)
                Thread.sleep(10);
            Thread.sleep(50);
            check(seen.get() == 5, seen);
            from.cancel();
            Thread.sleep(100);
            byte[] in = records(7, 50);
            check(Arrays.equals(a.run(in), expected(in)), "after cancel");

            // A request for nothing is an error of the subscriber's.
            Flow.Processor<Long, Long> second = a.processor(new Compared());
            try (SubmissionPublisher<Long> other = new SubmissionPublisher<>()) {
                other.subscribe(second);
                CompletableFuture<Throwable> wrong = new CompletableFuture<>();
                second.subscribe(new Flow.Subscriber<>() {
                    @Override
                    public void onSubscribe(Flow.Subscription s) {
                        s.request(0);
                    }

                    @Override
                    public void onNext(Long index) {
                    }

                    @Override
                    public void onError(Throwable thrown) {
                        wrong.complete(thrown);
                    }

                    @Override
                    public void onComplete() {
                    }
                });
                check(wrong.get(10, TimeUnit.SECONDS) instanceof IllegalArgumentException, "request(0)");
            }
        }
    }

    /** Wrong records are refused, and the stream goes on. */
    private static void wrong() {
        try (Accelerator a = builder().open()) {
            illegal(() -> a.run(new byte[SIZE + 1]));
            illegal(() -> a.run(ByteBuffer.allocate(SIZE), ByteBuffer.allocate(SIZE - 1)));
            List<byte[]> records = List.of(record(0), record(1), new byte[SIZE - 1], record(3), new byte[SIZE + 1]);
            Iterator<byte[]> answers = a.map(records.iterator());
            int right = 0;
            int refused = 0;
            while (true) {
                try {
                    if (!answers.hasNext())
                        break;
                    byte[] answer = answers.next();
                    check(Arrays.equals(answer, expected(record(right == 2 ? 3 : right))), right);
                    right++;
                } catch (IllegalArgumentException e) {
                    check(e.getMessage().contains("16"), e.getMessage());
                    refused++;
                }
            }
            check(right == 3 && refused == 2, right + " " + refused);
            Codec<Long, Long> half = new Codec<>() {
                @Override
                public void pack(Long value, ByteBuffer slot) {
                    slot.putLong(value);
                }

                @Override
                public Long unpack(ByteBuffer answer) {
                    return 0L;
                }
            };
            illegal(() -> a.map(List.of(1L).iterator(), half).next());
            byte[] in = records(3, 100);
            check(Arrays.equals(a.run(in), expected(in)), "after wrong records");
        }
    }

    /** A stream with a short timeout, but long enough to open it. */
    private static Accelerator openInTime() {
        for (long timeout = 1;; timeout *= 2) {
            try {
                return builder().timeout(Duration.ofMillis(timeout)).open();
            } catch (ReseatException e) {
                check(e.reason() == ReseatException.Reason.TIMED_OUT, e);
            }
        }
    }

    /** A thread that waits is interrupted, or its time passes, or the stream is closed; else it goes on. */
    @SuppressWarnings("try") // It is closed under way.
    private static void interrupted() throws Exception {
        try (Accelerator a = builder().timeout(Duration.ofSeconds(60)).open(); Accelerator quick = openInTime()) {
            for (int i = 0; i < 20; i++) {
                CompletableFuture<Boolean> flag = new CompletableFuture<>();
                Thread waiter = new Thread(() -> {
                    refused(a::answers, ReseatException.Reason.INTERRUPTED);
                    flag.complete(Thread.currentThread().isInterrupted());
                });
                waiter.start();
                Thread.sleep(i);
                waiter.interrupt();
                check(flag.get(10, TimeUnit.SECONDS), "the interrupt was lost");
            }
            byte[] in = records(0, 300);
            check(Arrays.equals(a.run(in), expected(in)), "after interrupts");
            refused(quick::answers, ReseatException.Reason.TIMED_OUT);
            for (byte[] answer = null; answer == null;) {
                try { // The time may be too short for an answer; the call can be made again.
                    answer = quick.run(record(1));
                    check(Arrays.equals(answer, expected(record(1))), "after a timeout");
                } catch (ReseatException e) {
                    check(e.reason() == ReseatException.Reason.TIMED_OUT, e);
                }
            }
            Thread.currentThread().interrupt();
            refused(() -> {
                for (int i = 0; i < 1000; i++)
                    a.run(in);
            }, ReseatException.Reason.INTERRUPTED);
            check(Thread.interrupted(), "the interrupt was lost");
            check(Arrays.equals(a.run(in), expected(in)), "after an interrupt in a batch");

            CompletableFuture<Boolean> closed = new CompletableFuture<>();
            Thread waiter = new Thread(() -> {
                refused(a::answers, ReseatException.Reason.CLOSED);
                closed.complete(true);
            });
            waiter.start();
            Thread.sleep(50);
            a.close();
            closed.get(10, TimeUnit.SECONDS);
            refused(() -> a.run(in), ReseatException.Reason.CLOSED);
        }
    }

    /** The stream is not opened; prints why. */
    private static void refusal() {
        System.out.println(refused(() -> builder().open().close(),
                ReseatException.Reason.valueOf(System.getProperty("reason"))).getMessage());
    }

    /** The stream fails under way, after the answers that came; prints why. */
    private static void failure() {
        AtomicLong came = new AtomicLong();
        try (Accelerator a = builder().open()) {
            Iterator<Long> answers = a.map(indices(Integer.MAX_VALUE), new Compared());
            ReseatException why = refused(() -> {
                for (;; came.incrementAndGet())
                    answers.next();
            }, ReseatException.Reason.valueOf(System.getProperty("reason")));
            System.out.println(came + " " + why.getMessage());
        }
    }

    /** A kernel of the program's own. */
    private static void own() {
        String description = "kernel = \"add\"; input = 8; output = 4; constants = ( { name = \"by\"; bytes = 4; } );";
        String source = "__kernel void add(__global const uint *in, __global uint *out, __constant uint *by)"
                + "{ size_t i = get_global_id(0); out[i] = in[2 * i] + in[2 * i + 1] + by[0]; }";
        byte[] by = {5, 0, 0, 0};
        try (Accelerator a = Reseat.kernel("add").source(description, source).constant("by", by).open()) {
            Codec<int[], Integer> codec = new Codec<>() {
                @Override
                public void pack(int[] value, ByteBuffer slot) {
                    slot.putInt(value[0]).putInt(value[1]);
                }

                @Override
                public Integer unpack(ByteBuffer answer) {
                    return answer.getInt();
                }
            };
            int[] next = {0};
            a.map(IntStream.range(0, 5000).mapToObj(i -> new int[] {i, 3 * i}), codec)
                    .forEach(sum -> check(sum == 4 * next[0]++ + 5, sum));
            check(next[0] == 5000, next[0]);
        }
        ReseatException why = refused(() -> Reseat.kernel("add")
                .source(description, source.replace("by[0]", "by[0] + nothing")).constant("by", by).open(),
                ReseatException.Reason.REFUSED);
        check(why.getMessage().contains("nothing"), why.getMessage());
        System.out.println(why.getMessage());
    }

    /** Random batches on one stream until standard input ends, all compared. */
    private static void chaos() {
        Random random = new Random(1);
        AtomicBoolean over = new AtomicBoolean();
        Thread listener = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (IOException e) {
                System.err.println(e);
            }
            over.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        long done = 0;
        try (Accelerator a = builder().open()) {
            System.out.println("program " + a.program() + " shared " + a.isShared());
            while (!over.get()) {
                int count = 1 + random.nextInt(20_000);
                byte[] in = records(done, count);
                check(Arrays.equals(a.run(in), expected(in)), done);
                done += count;
                progress(done);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        long count = arguments.length > 1 ? Long.parseLong(arguments[1]) : 1000;
        switch (arguments[0]) {
            case "map" -> map(count);
            case "slow" -> slow(count);
            case "ways" -> ways(count);
            case "pressure" -> pressure();
            case "wrong" -> wrong();
            case "interrupted" -> interrupted();
            case "refusal" -> refusal();
            case "failure" -> failure();
            case "own" -> own();
            case "chaos" -> chaos();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("ok");
    }
}
