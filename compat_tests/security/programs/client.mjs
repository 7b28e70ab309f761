// Takes cases from standard input, a JSON object a line, and prints for each what kafkajs said. A case that is kept is
// one record, sent by a producer that lasts for all such cases of its topic; what is said is how many connections that
// producer has opened.
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { Kafka, Partitioners } from "kafkajs";

function config(given) {
  if (given.brokers) {
    // kafkajs' own settings, of which a function cannot be JSON
    const value = given.sasl?.oauthBearerProvider;
    if (value) given.sasl.oauthBearerProvider = async () => ({ value });
    return given;
  }
  const made = { brokers: [given.Servers] };
  if (given.Protocol.endsWith("SSL")) {
    made.ssl = { ca: [readFileSync(given.Ca)] };
    if (given.Certificate) {
      made.ssl.key = made.ssl.cert = readFileSync(given.Certificate);
    }
  }
  if (given.Mechanism === "OAUTHBEARER") {
    const oauthBearerProvider = async () => ({ value: readFileSync(given.Token_file, "utf8") });
    made.sasl = { mechanism: "oauthbearer", oauthBearerProvider };
  } else if (given.Mechanism) {
    made.sasl = { mechanism: given.Mechanism.toLowerCase(), username: given.User, password: given.Password };
  }
  return made;
}

async function run(asked) {
  const kafka = new Kafka({
    ...config(asked.settings),
    logLevel: 0,
    retry: { retries: 1, maxRetryTime: asked.timeout_ms },
    connectionTimeout: asked.timeout_ms,
    authenticationTimeout: asked.timeout_ms,
  });
  const producer = kafka.producer({
    transactionalId: asked.topic,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  try {
    const transaction = await producer.transaction();
    await transaction.send({ topic: asked.topic, messages: [{ value: asked.value }] });
    await transaction.commit();
  } finally {
    await producer.disconnect();
  }
  const consumer = kafka.consumer({ groupId: asked.topic });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [asked.topic], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error("no record")), asked.timeout_ms).unref();
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
    });
  } finally {
    await consumer.disconnect();
  }
}

const kept = {};

async function keep(asked) {
  const made = { opened: 0 };
  const kafka = new Kafka({
    ...config(asked.settings),
    logLevel: 0,
    reauthenticationThreshold: Number(asked.settings.Renewal_ms),
    socketFactory: ({ host, port, onConnect }) => {
      made.opened += 1;
      return connect({ host, port }, onConnect);
    },
  });
  made.producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await made.producer.connect();
  return made;
}

async function send(asked) {
  const found = (kept[asked.topic] ??= await keep(asked));
  await found.producer.send({ topic: asked.topic, messages: [{ value: asked.value }] });
  return String(found.opened);
}

async function answer(asked) {
  const said = { id: asked.id };
  try {
    said.value = await (asked.kept ? send : run)(asked);
  } catch (error) {
    said.error = error.name;
    said.said = error.message;
  }
  console.log(JSON.stringify(said));
}

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line));
}
